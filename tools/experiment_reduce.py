"""The experiment reduce (tools/experiment.py): sums of gradients over ranks in several formats, with the loss and the bytes of each.

One process simulates the ranks: batch.shards gives their bits (docs/numerics.md). A comparison for each number of ranks trains
every format with the same seeds, and judges it against f32 on as many ranks.
"""
import json
import statistics

RANKS = [2, 8, 64]
SUMS = [("f32", "nearest", 1), ("bf16", "nearest", 1), ("bf16", "stochastic", 1), ("f16", "nearest", 1), ("f16", "stochastic", 1),
        ("e5m2", "nearest", 1), ("e5m2", "stochastic", 1), ("e4m3", "nearest", 1), ("e4m3", "stochastic", 1),
        ("e4m3", "nearest", 1024), ("e4m3", "stochastic", 1024)]  # format, rounding, loss scale
HEADER = ["reduce", "rounding", "loss scale", "ranks", "held-out loss", "change of the loss", "±", "verdict", "became zero, %",
          "beyond range, %", "KB sent"]


def policy_of(format, rounding, scale):
    return f"32-true reduce={format}" + (f" reduce_rounding={rounding}" if rounding != "nearest" else "") \
        + (f" loss_scale={scale}" if scale != 1 else "")


def comparison_of(mantissa, ranks, config, seeds, steps):
    """Returns the comparison of all formats on `ranks` ranks."""
    out = mantissa.out / f"ranks-{ranks}"
    options = ["compare", config, "--out", out, "--quiet", "--seeds", seeds, "--precision", ",".join(policy_of(*sums) for sums in SUMS),
               "--set", f"run.steps={steps}", "--set", f"batch.shards={ranks}",
               "--set", f"batch.micro_batch_size={64 // ranks}", *mantissa.threads]
    mantissa(*options)
    return json.loads((out / "compare.json").read_text())


def of_policy(comparison, index, key):
    """Returns a figure of a policy, one for each seed."""
    runs = [comparison["runs"][index]] + [r for r in comparison["reseeded"] if r["run"] == index]
    return [run[key] for run in runs if run[key] is not None]


def number(values, text):
    return text(statistics.mean(values)) if values else "–"


def rows_of(comparison, ranks):
    """Returns the rows of the table for one number of ranks."""
    rows = []
    for index, (sums, run) in enumerate(zip(SUMS, comparison["runs"])):
        reference = index == 0
        error = (run["paired"] or {}).get("standard_error")
        percent = lambda key: number(of_policy(comparison, index, key), lambda v: f"{100 * v:.2g}")
        rows.append([*sums, ranks, number(of_policy(comparison, index, "validation_loss"), lambda v: f"{v:.4f}"),
                     "–" if reference or run["gap"] is None else f"{run['gap']:+.2g}",
                     "–" if reference or error is None else f"{error:.2g}", run["outcome"], percent("reduce_flushed"),
                     percent("reduce_saturated"), number(of_policy(comparison, index, "sent_bytes"), lambda v: f"{v / 1e3:.0f}")])
    return rows


def experiment_reduce(args, mantissa, config):
    return HEADER, [row for ranks in RANKS
                    for row in rows_of(comparison_of(mantissa, ranks, config, args.seeds, args.steps), ranks)]
