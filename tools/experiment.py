#!/usr/bin/env python3
"""Runs the experiments of docs/post-training.md, docs/many-machines.md and docs/experiments.md, and prints their tables. Needs only
Python's standard library.

    python tools/experiment.py kk [--out DIR]         three policies, three seeds: supervised start, then rl
    python tools/experiment.py mismatch [--out DIR]   training in f32, rollouts in other precisions
    python tools/experiment.py reduce [--out DIR]     sums of gradients over 2, 8 and 64 simulated ranks in several formats
    python tools/experiment.py nvfp4|mx|promotion|stochastic [--out DIR]
                                                      recipes of low precision, with what papers found beside them
    python tools/experiment.py hidden [--out DIR]     communication that two ranks hide over links of several rates; as root

The first two start from the model of experiments/kk-start.toml, which imitates a careless teacher: 45 % of its answers reason and are
right, the others are guesses. Whatever is finished in DIR is kept, so a stopped experiment continues there with the same options.
DIR gets the runs, results.json, and in compare*/report.html the curves.
"""
import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys
import time

from experiment_hidden import experiment_hidden
from experiment_recipes import RECIPES, experiment_recipes
from experiment_reduce import experiment_reduce

HERE = pathlib.Path(__file__).resolve().parent
CONFIGS = HERE / "experiments"
POLICIES = ["32-true", "bf16-mixed", "16-mixed"]
SEEDS = [1, 2, 3]
ROLLOUTS = {"bf16": "bf16-mixed", "fp8": "fp8-hybrid scaling=current", "nvfp4": "bf16-mixed compute=nvfp4"}
REASONED = 0.45  # share of the teacher's answers that reason
PUZZLES = {2: 30000, 3: 10000}  # the teacher's, by people


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("experiment", choices=["kk", "mismatch", "reduce", "hidden", *RECIPES])
    p.add_argument("--out", type=pathlib.Path, help="default: runs/experiment-kk, of others than kk and mismatch runs/experiment-NAME")
    p.add_argument("--mantissa", default=str(HERE.parent / "build" / "mantissa"))
    p.add_argument("--threads", default=0, type=int, help="0: all cores")
    p.add_argument("--steps", type=int, help="of each rl run (40), of each run of reduce (100), hidden (5) or recipes (200)")
    p.add_argument("--seeds", default=3, type=int, help="of reduce and recipes")
    p.add_argument("--rates", default=[20, 50, 100, 200], type=int, nargs="+", help="Mbit/s of the links of hidden")
    p.add_argument("--start-steps", default=1000, type=int)
    p.add_argument("--puzzles", default=500, type=int, help="held-out puzzles that measure a model")
    args = p.parse_args()
    usual = {"kk": ("kk", 40), "mismatch": ("kk", 40), "reduce": ("reduce", 100), "hidden": ("hidden", 5)}
    name, steps = usual.get(args.experiment, (args.experiment, 200))
    args.out = args.out or pathlib.Path("runs") / f"experiment-{name}"
    args.steps = args.steps or steps
    return args


class Mantissa:
    """Runs the program in the experiment's directory, and keeps the seconds that each run took."""

    def __init__(self, args):
        self.program, self.out = str(pathlib.Path(args.mantissa).resolve()), args.out.resolve()
        if not pathlib.Path(self.program).is_file():
            sys.exit(f"experiment: there is no {self.program}. Fix: ./dev build, or --mantissa FILE")
        self.threads = ["--threads", str(args.threads)]
        self.out.mkdir(parents=True, exist_ok=True)

    def __call__(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], cwd=self.out, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"experiment: mantissa {' '.join(map(str, arguments))} ended with code {done.returncode}")
        return done.stdout

    def run(self, command, config, name, settings, *options):
        """Trains into the directory `name`, unless a run finished there. Returns the directory."""
        directory = self.out / name
        if (directory / "summary.json").exists() and (directory / "model").exists():
            steps = json.loads((directory / "summary.json").read_text())["steps"]
            if steps != settings["run.steps"]:
                sys.exit(f"experiment: {directory} has a run of {steps} steps, not {settings['run.steps']}. Fix: choose another "
                         "--out, or remove that directory")
        else:
            begun = time.monotonic()
            sets = [x for key, value in settings.items() for x in ("--set", f"{key}={value}")]
            resume = ["--resume"] if (directory / "state").exists() else ["--overwrite"]
            self(command, CONFIGS / config, "--out", name, "--quiet", *sets, *options, *resume, *self.threads)
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        return directory

    def right(self, model, policies, puzzles):
        """Returns for each policy the numbers of right answers to held-out puzzles, and of puzzles, by people."""
        text = self("eval", model, "--data", "kk", "--puzzles", puzzles, "--precision", ",".join(policies), "--json",
                    *self.threads)
        measurements = json.loads(text)  # of several policies an array in "policies"
        found = {}
        for policy, measured in zip(policies, measurements.get("policies", [measurements])):
            counts = {}
            for answer in measured["answers"]:
                right, all_ = counts.get(answer["people"], (0, 0))
                counts[answer["people"]] = (right + answer["right"], all_ + 1)
            found[policy] = counts
        return found


def write_rows(mantissa):
    """Writes the teacher's answers, and a tokenizer of their words."""
    if (mantissa.out / "tokenizer").exists():
        return
    draw, rows = random.Random(1), []
    for people, count in PUZZLES.items():
        puzzles = mantissa("data", "kk", "--count", count, "--people-min", people, "--people-max", people, "--seed", 11)
        for line in puzzles.splitlines():
            puzzle = json.loads(line)
            answer = puzzle["text"][len(puzzle["prompt_text"]):]
            if draw.random() >= REASONED:
                roles = [f"({i}) {name} is a {draw.choice(['knight', 'knave'])}" for i, name in enumerate(puzzle["names"], 1)]
                answer = " <think>I guess.</think> <answer>" + "\n".join(roles) + "</answer>"
            rows.append({"prompt": puzzle["prompt_text"], "completion": answer})
    draw.shuffle(rows)
    (mantissa.out / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (mantissa.out / "rows.txt").write_text("".join(row["prompt"] + row["completion"] + "\n" for row in rows[:6000]))
    mantissa("tokenizer", "train", "rows.txt", "--out", "tokenizer", "--vocab-size", 512, "--quiet")


def start_of(mantissa, seed, steps):
    return mantissa.run("train", "kk-start.toml", f"start-{seed}",
                        {"run.seed": seed, "run.steps": steps, "data.source": mantissa.out / "rows.jsonl",
                         "data.tokenizer": mantissa.out / "tokenizer"})


def metrics_of(directory):
    lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line.get("loss") is not None]


def share(counts, people=None):
    chosen = [c for p, c in counts.items() if people in (None, p)]
    return sum(right for right, _ in chosen) / sum(all_ for _, all_ in chosen)


def of_seeds(values):
    """Returns the mean in percent, and the standard deviation over the seeds."""
    values = [100 * v for v in values]
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def paired_points(results, policy, reference):
    """Returns the mean difference of two policies in right answers after rl, in points, seed by seed, and its standard error."""
    of = lambda name: {r["seed"]: share(r["after"]) for r in results if r["policy"] == name}
    own, other = of(policy), of(reference)
    points = [100 * (own[seed] - other[seed]) for seed in sorted(own.keys() & other.keys())]
    error = statistics.stdev(points) / math.sqrt(len(points)) if len(points) > 1 else math.nan
    return statistics.mean(points), error


def runs_to_compare():
    """Returns the runs of all seeds, those of the first seed first: compare pairs runs of one seed."""
    return [f"{policy}-{seed}" for seed in SEEDS for policy in POLICIES]


def print_table(header, rows):
    print("\n| " + " | ".join(header) + " |\n|" + " --- |" * len(header))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def experiment_kk(args, mantissa):
    results = []
    for seed in SEEDS:
        start = start_of(mantissa, seed, args.start_steps)
        before = mantissa.right(start / "model", POLICIES, args.puzzles)
        for policy in POLICIES:
            run = mantissa.run("rl", "kk-rl.toml", f"{policy}-{seed}",
                               {"run.seed": seed, "run.steps": args.steps, "model.path": start / "model"},
                               "--precision", policy)
            steps = metrics_of(run)
            results.append({"policy": policy, "seed": seed, "before": before[policy],
                            "after": mantissa.right(run / "model", [policy], args.puzzles)[policy],
                            "lengths": [steps[0]["response_length"], steps[-1]["response_length"]],
                            "entropies": [steps[0]["entropy"], steps[-1]["entropy"]],
                            "difference": max(s["rollout_difference"] for s in steps),
                            "ratios": [min(s["ratio_min"] for s in steps), max(s["ratio_max"] for s in steps)],
                            "skipped": sum(s["skipped"] for s in steps)})
            (mantissa.out / "results.json").write_text(json.dumps(results, indent=1))
    rows = []
    for policy in POLICIES:
        of = [r for r in results if r["policy"] == policy]
        cell = lambda when, people=None: of_seeds([share(r[when], people) for r in of])
        lift = [share(r["after"]) - share(r["before"]) for r in of]
        rows.append([policy, cell("before"), cell("after"), cell("before", 2), cell("after", 2), cell("before", 3),
                     cell("after", 3), of_seeds(lift), max(r["difference"] for r in of)])
    print_table(["policy", "before", "after", "2 people", "after", "3 people", "after", "gain", "largest difference"], rows)
    error = 100 * math.sqrt(0.25 / args.puzzles)
    print(f"\nRight answers in % of {args.puzzles} held-out puzzles: mean and standard deviation of {len(SEEDS)} seeds. The "
          f"standard error of one measurement is at most {error:.1f}.")
    for policy in POLICIES[1:]:
        points, error = paired_points(results, policy, POLICIES[0])
        print(f"{policy} after rl, paired with {POLICIES[0]} of the same seed: {points:+.1f} ± {error:.1f} points (standard error).")
    mantissa("compare", *runs_to_compare(), "--out", "compare", "--quiet")
    print(json.loads((mantissa.out / "compare" / "compare.json").read_text())["verdict"])


def experiment_mismatch(args, mantissa):
    start, results, names = start_of(mantissa, 1, args.start_steps), [], []
    cases = [("none", "", {})]
    for name, policy in ROLLOUTS.items():
        cases += [(name, policy, {}), (name + ", weighted", policy, {"rl.importance_cap": 2}),
                  (name + ", f32 head", policy + "; lm_head: compute=f32", {})]
    for name, policy, more in cases:
        directory = "mismatch-" + name.replace(", ", "-").replace(" ", "-")
        names.append(directory)
        run = mantissa.run("rl", "kk-rl.toml", directory,
                           {"run.steps": args.steps, "model.path": start / "model", "rl.rollout_precision": policy, **more},
                           "--precision", "32-true")
        steps = metrics_of(run)
        mean = lambda key: statistics.mean(s[key] for s in steps)
        results.append([name, f"{max(s['rollout_difference'] for s in steps):.2g}"]
                       + ([f"{mean('rollout_kl'):.2g}", f"{max(s['rollout_ratio_max'] for s in steps):.3g}",
                           f"{100 * mean('effective_sample_share'):.0f}"] if policy else ["0", "1", "100"])
                       + [f"{100 * share(mantissa.right(run / 'model', ['32-true'], args.puzzles)['32-true']):.1f}"])
    print_table(["rollouts in", "largest difference", "divergence", "largest ratio", "effective samples, %",
                 "right after, %"], results)
    mantissa("compare", *names[:1], *(n for n in names[1:] if n.count("-") == 1), "--out", "compare-mismatch", "--quiet")


def main():
    args = parse()
    begun, mantissa = time.monotonic(), Mantissa(args)
    if args.experiment == "reduce":
        print_table(*experiment_reduce(args, mantissa, CONFIGS / "reduce.toml"))
    elif args.experiment in RECIPES:
        print_table(*experiment_recipes(args, mantissa, CONFIGS / "recipes.toml"))
    elif args.experiment == "hidden":
        print_table(*experiment_hidden(args, mantissa, CONFIGS / "hidden.toml"))
    else:
        write_rows(mantissa)
        {"kk": experiment_kk, "mismatch": experiment_mismatch}[args.experiment](args, mantissa)
    print(f"\n{(time.monotonic() - begun) / 60:.1f} minutes; the runs are in {args.out}")


if __name__ == "__main__":
    main()
