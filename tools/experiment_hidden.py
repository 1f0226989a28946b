"""The experiment hidden (tools/experiment.py): the share of communication that takes place while ranks compute, measured and predicted.

Two ranks with a thread each train over links of several rates between two network namespaces (examples/two-machines.sh, as root). They
share the processor of one machine, so each computes slower than a rank with a machine of its own, for which `explain` forecasts. The
time without communication is therefore measured: that of two processes, each with half of the batch, at the same time.
"""
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = HERE.parent / "docs" / "pictures" / "hidden-communication.svg"
STAGES = [0, 2, 3]
HEADER = ["Mbit/s", "`zero`", "computing, s", "transfers, s", "step, measured, s", "step, forecast, s", "hidden, measured, %",
          "hidden, forecast, %"]


def check(code, errors, what):
    if code:
        sys.exit(f"experiment: {what} ended with code {code}: {errors.strip()[-400:]}")


def over_link(mantissa, rate, *arguments):
    """Runs the program on both machines. Returns its standard output."""
    command = [HERE.parent / "examples" / "two-machines.sh", f"{rate}mbit", mantissa.program, *map(str, arguments)]
    done = subprocess.run(command, cwd=mantissa.out, capture_output=True, text=True)
    check(done.returncode, done.stderr, f"mantissa {arguments[0]} over {rate} Mbit/s")
    return done.stdout


def training(config, name, steps, *settings):
    return ["train", config, "--out", name, "--overwrite", "--quiet", "--threads", "1", "--set", f"run.steps={steps}",
            *[word for setting in settings for word in ("--set", setting)]]


def seconds_of(mantissa, name):
    """Returns the median of the steps after the first."""
    lines = [json.loads(line) for line in (mantissa.out / name / "metrics.jsonl").read_text().splitlines()]
    return statistics.median(line["seconds"] for line in lines if line.get("loss") is not None and line["step"] > 1)


def computing_seconds(mantissa, config, steps):
    """Returns the seconds of a step of a rank without communication, while the other rank computes."""
    names = ["alone-0", "alone-1"]
    both = [subprocess.Popen(list(map(str, [mantissa.program, *training(config, name, 3 * steps, "batch.global_batch_size=4",
                                                                        "batch.shards=2")])),
                             cwd=mantissa.out, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for name in names]
    for process in both:
        _, errors = process.communicate()
        check(process.returncode, errors, "mantissa train without a link")
    return statistics.mean(seconds_of(mantissa, name) for name in names)


def forecast(mantissa, config, network, stage, computing):
    """Returns the forecast for ranks whose computing takes `computing` seconds. All times of a forecast are in proportion, so those over a
    link that is faster by a factor, on a machine that is, are shorter by it."""
    def explain(factor):
        file = mantissa.out / "network.json"
        file.write_text(json.dumps({"network": {"latency_seconds": network["latency_seconds"] / factor,
                                                "bytes_per_second": network["bytes_per_second"] * factor}}))
        return json.loads(mantissa("explain", config, "--threads", 1, "--ranks", 2, "--nodes", 2, "--network", file, "--json",
                                   "--set", f"distributed.zero={stage}"))["ranks"]
    best = None
    factor = computing / explain(1)["computing_seconds"]
    for _ in range(6):  # the rates of the machine vary while others use it
        found = explain(factor)
        scale = computing / found["computing_seconds"]
        off = abs(scale / factor - 1)
        if best is None or off < best[0]:
            best = off, scale, found
        if off < 0.02:
            break
        factor = (factor * scale) ** 0.5
    _, scale, found = best
    return {key: found[key] * scale for key in ("sending_seconds", "seconds_per_step")} | {"hidden": 100 * found["hidden_share"]}


def draw(points, rates):
    """Draws the shares against the rate: lines are forecasts, dots measurements. `points`: stage -> [(rate, measured, forecast)]."""
    width, height, left, top = 640, 360, 60, 30
    at = lambda rate, share: (left + 480 * (rates.index(rate) + 0.5) / len(rates), top + (100 - share) * 2.7)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for share in range(0, 101, 25):
        y = at(rates[0], share)[1]
        parts.append(f'<line x1="{left}" x2="{width - 40}" y1="{y}" y2="{y}" stroke="#ddd"/>'
                     f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{share}</text>')
    for rate in rates:
        parts.append(f'<text x="{at(rate, 0)[0]}" y="{top + 290}" text-anchor="middle">{rate}</text>')
    parts.append(f'<text x="{left + 240}" y="{top + 312}" text-anchor="middle">rate of the link, Mbit/s</text>'
                 f'<text x="{left - 8}" y="18">hidden share of the communication, %: forecast (lines) and measured (dots)</text>')
    for i, ((stage, of), color) in enumerate(zip(points.items(), ["#1b6ca8", "#c0562f", "#3a8f4d"])):
        line = " ".join("{:.1f},{:.1f}".format(*at(rate, predicted)) for rate, _, predicted in of)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for rate, measured, _ in of:
            x, y = at(rate, measured)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>')
        parts.append(f'<text x="{left + 10}" y="{top + 20 + 16 * i}" fill="{color}">zero = {stage}</text>')
    PICTURE.write_text("\n".join(parts + ["</svg>", ""]))


def experiment_hidden(args, mantissa, config):
    rows, points = [], {stage: [] for stage in STAGES}
    rates = sorted(args.rates)
    for rate in reversed(rates):  # the fastest first
        network = json.loads(over_link(mantissa, rate, "doctor", "--json"))["network"]
        for stage in STAGES:
            name = f"{rate}-{stage}"
            over_link(mantissa, rate, *training(config, name, args.steps, f"distributed.zero={stage}"))
            measured, computing = seconds_of(mantissa, name), computing_seconds(mantissa, config, args.steps)
            predicted = forecast(mantissa, config, network, stage, computing)
            sending = predicted["sending_seconds"]
            hidden = 100 * max(0, min(1, 1 - (measured - computing) / sending))
            points[stage].insert(0, (rate, hidden, predicted["hidden"]))
            rows.append([rate, stage, f"{computing:.2f}", f"{sending:.2f}", f"{measured:.2f}", f"{predicted['seconds_per_step']:.2f}",
                         f"{hidden:.0f}", f"{predicted['hidden']:.0f}"])
            print(*rows[-1], flush=True)
        draw(points, rates)
    return HEADER, sorted(rows)
