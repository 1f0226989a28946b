#!/usr/bin/env python3
"""Copies a run directory to Weights & Biases or trackio: every line of metrics.jsonl, and the config.

    export_run.py wandb|trackio RUN [RUN…] [--project NAME] [--online]

Each run is named after its directory. Without --online, W&B writes offline files to ./wandb, which `wandb sync` uploads; trackio
always writes to its local store. Needs the pip package of that name.
"""
import argparse
import json
import math
import pathlib
import sys
import tomllib


def numbers(values, prefix=""):
    """Returns the finite numbers of a line by name; those of lists and objects have their place in the name."""
    out = {}
    items = values.items() if isinstance(values, dict) else enumerate(values)
    for name, value in items:
        name = f"{prefix}{name}"
        if isinstance(value, (dict, list)):
            out |= numbers(value, name + "/")
        elif isinstance(value, (int, float)) and math.isfinite(value):
            out[name] = float(value) if not isinstance(value, bool) else int(value)
    return out


def steps(path):
    """Yields (step, numbers): lines of one step, such as that of its validation, are joined."""
    joined, at = {}, None
    for line in path.read_text().splitlines():
        values = json.loads(line)
        step = values.pop("step")
        if at is not None and step != at:
            yield at, joined
            joined = {}
        at = step
        joined |= numbers(values)
    if at is not None:
        yield at, joined


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("to", choices=["wandb", "trackio"])
    parser.add_argument("runs", nargs="+", type=pathlib.Path, metavar="RUN")
    parser.add_argument("--project", default="mantissa")
    parser.add_argument("--online", action="store_true")
    args = parser.parse_args()
    for run in args.runs:
        if not (run / "metrics.jsonl").is_file():
            sys.exit(f"export_run.py: {run}: has no metrics.jsonl; give a run directory")
    if args.to == "wandb":
        import wandb as service
        more = {"mode": "online" if args.online else "offline"}
    else:
        import trackio as service
        more = {}
    for run in args.runs:
        config = tomllib.loads((run / "config.toml").read_text()) if (run / "config.toml").is_file() else {}
        service.init(project=args.project, name=run.resolve().name, config=config, **more)
        count = 0
        for step, values in steps(run / "metrics.jsonl"):
            service.log(values, step=step)
            count += 1
        service.finish()
        print(f"{run}: {count} steps")


if __name__ == "__main__":
    main()
