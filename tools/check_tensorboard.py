#!/usr/bin/env python3
"""Reads a run's TensorBoard events with TensorBoard's own reader and compares them with its metrics.jsonl and health.jsonl.

    check_tensorboard.py RUN

Needs the Python package tensorboard. Fails if a scalar is missing or differs by more than the precision of f32.
"""
import json
import math
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TAGS = ("loss", "grad_norm", "lr", "loss_scale", "tokens_per_second", "validation_loss")


def main():
    run = pathlib.Path(sys.argv[1])
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    read = {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}
    wanted = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for tag in TAGS:
            if row.get(tag) is not None:
                wanted.setdefault(tag, {})[row["step"]] = row[tag]
    if (run / "health.jsonl").exists():
        for line in (run / "health.jsonl").read_text().splitlines():
            row = json.loads(line)
            for field in ("grad_absmax", "weight_absmax"):
                of_model = max(parameter[field] for parameter in row["health"].values())
                wanted.setdefault(f"health/{field}", {})[row["step"]] = of_model
    faults = 0
    for tag, steps in wanted.items():
        for step, value in steps.items():
            got = read.get(tag, {}).get(step)
            if got is None or not math.isclose(got, value, rel_tol=1e-5):
                faults += 1
                print(f"{tag} at step {step}: the run's files have {value}, the events have {got}")
    print(f"{sum(map(len, wanted.values()))} values of {', '.join(wanted)}: {faults} differ")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
