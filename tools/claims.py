#!/usr/bin/env python3
"""Measures common claims about training precision and writes docs/claims.md.

    claims.py --machine NAME [--mantissa build/mantissa] [--rounds 3] [--steps 12] [--out docs/claims.md]

Trains a Llama of 24M on random ids under each policy in turn, `rounds` times. Speeds are medians over steps. Memory is the run's own
measurement. Times of accelerators are the plan's predictions from stated throughputs.
"""
import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile
from datetime import date

SHAPE = dict(hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8,
             vocab_size=4096, max_position_embeddings=256)
BATCH, LENGTH = 8, 256
POLICIES = {
    "32-true": "f32",
    "bf16-mixed": "bf16 mixed",
    "16-mixed": "fp16 mixed",
    "bf16-true": "bf16 true, f32 moments",
    "bf16-true optimizer=bf16 rounding=stochastic": "bf16 true, bf16 moments",
    "bf16-mixed optimizer=dynamic8-256": "bf16 mixed, moments in 8 bits",
    "bf16-true optimizer=dynamic8-256 rounding=stochastic": "bf16 true, moments in 8 bits",
    "16-true": "fp16 true",
    "tf32": "tf32 products",
    "bf16-matmul": "f32, bf16 products",
    "bf16-matmul-x3": "f32, three bf16 products",
    "bf16-matmul-x6": "f32, six bf16 products",
    "bf16-mixed output=compute>f32": "bf16 mixed, logits rounded at the edge",
    "bf16-mixed weights=q4_0": "bf16 mixed, weights rounded to q4_0",
    "fp8-hybrid": "fp8 hybrid",
    "bf16-mixed compute=mxfp8": "mxfp8",
    "bf16-mixed compute=mxfp8; *: operand=gradient compute=mxfp8-e5m2": "mxfp8, gradients e5m2",
    "bf16-mixed compute=mxfp4": "mxfp4",
    "bf16-mixed compute=nvfp4": "nvfp4",
    "accumulate=f16": "f32, fp16 sums of 256",
    "accumulate=f16 accumulate_block=32": "f32, fp16 sums of 32",
    "params=e4m3 rounding=stochastic": "f32, weights in e4m3",
    "bf16-mixed; *: rounding=stochastic": "bf16 mixed, activations rounded stochastically",
    "bf16-mixed; *: op=softmax compute=bf16": "bf16 mixed, softmax in bf16",
    "bf16-mixed; *: op=update compute=bf16": "bf16 mixed, update in bf16",
}
TARGETS = ["v100", "a100", "h100", "tpu-v5e"]


def config(folder, steps):
    ids = random.Random(1)
    count = BATCH * LENGTH * 4 + 1
    (folder / "ids.bin").write_bytes(struct.pack(f"<{count}H", *(ids.randrange(SHAPE["vocab_size"]) for _ in range(count))))
    model = "\n".join(f"{key} = {value}" for key, value in SHAPE.items())
    text = f"""[run]
steps = {steps}
[model]
model_type = "llama"
{model}
[data]
source = "ids.bin"
format = "tokens"
sequence_length = {LENGTH}
shuffle = false
validation = 0
[batch]
global_batch_size = {BATCH}
micro_batch_size = {BATCH}
[checkpoint]
interval = 0
[log]
tensorboard = false
"""
    path = folder / "run.toml"
    path.write_text(text)
    return path


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def megabytes(value):
    return f"{value / 1e6:.0f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def measure(program, folder, path, rounds):
    """Returns per policy: seconds of every step except each run's first, every run's prediction, and the last run's summary and plan."""
    results = {policy: {"seconds": [], "planned": []} for policy in POLICIES}
    targets = [argument for t in TARGETS for argument in ("--target", t)]
    for _ in range(rounds):
        for policy, result in results.items():
            out = folder / "run"
            run(program, "train", path, "--precision", policy, "--out", out, "--overwrite", "--quiet")
            steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
            result["seconds"] += [s["seconds"] for s in steps if "seconds" in s][1:]
            result["plan"] = json.loads(run(program, "explain", path, "--precision", policy, "--json", *targets))
            result["planned"].append(result["plan"]["seconds_per_step"])
            result["summary"] = json.loads((out / "summary.json").read_text())
    return results


def page(results, args):
    base = results["32-true"]
    base_seconds = statistics.median(base["seconds"])
    speed, memory, there = [], [], []
    for policy, name in POLICIES.items():
        r = results[policy]
        seconds = statistics.median(r["seconds"])
        peak = r["summary"]["measured_peak_bytes"]
        speed.append([name, f"`{policy}`", f"{BATCH * LENGTH / seconds:.0f}", f"{base_seconds / seconds:.2f}",
                      f"{statistics.median(r['planned']) / seconds:.2f}", f"{r['summary']['final_loss']:.4f}"])
        m = r["plan"]["memory"]
        memory.append([name, megabytes(peak), f"{peak / base['summary']['measured_peak_bytes']:.2f}",
                       f"{r['summary']['predicted_peak_bytes'] / peak:.3f}"]
                      + [megabytes(m[key]) for key in ("masters", "copies", "gradients", "moments", "activations", "work")])
        by_name = {t["name"]: t for t in r["plan"]["targets"]}
        there.append([name] + [f"{1e3 * by_name[t]['seconds_per_step']:.2f}" for t in TARGETS])
    size = len(POLICIES)

    def ratio(policy):
        return f"{base_seconds / statistics.median(results[policy]['seconds']):.2f} ×"

    def share(policy):
        return f"{results[policy]['summary']['measured_peak_bytes'] / base['summary']['measured_peak_bytes']:.2f} ×"

    def part(purpose):
        return f"{100 * base['plan']['memory'][purpose] / base['plan']['memory']['peak']:.0f} %"

    return f"""# Claims about precision, measured

Written by `tools/claims.py`: a Llama of 24M (hidden size {SHAPE['hidden_size']}, {SHAPE['num_hidden_layers']} layers, vocabulary {SHAPE['vocab_size']}), {BATCH} × {LENGTH} tokens
per step, AdamW, under {size} policies in turn, {args.rounds} run{'s' * (args.rounds > 1)} of {args.steps} steps each, on {date.today():%d %B %Y} on {args.machine}. The speeds show the
cost of formats that are converted or simulated. The last table shows the gain on accelerators; it is predicted, not
measured.

## Speed

"To f32" is the speed relative to f32. "Plan" is the predicted time of a step divided by the measured time. The ids are random, so
the losses only show that all policies take similar steps.

{table(["precision", "policy", "tokens/s", "to f32", "plan", "loss"], speed)}
- **"Half precision trains 20–50 % faster."** On this CPU mixed precision runs at {ratio('bf16-mixed')} (bf16) and {ratio('16-mixed')} (fp16) of the f32 speed,
  true precision at {ratio('bf16-true')} and {ratio('16-true')}. 16-bit operands are multiplied as f32, and their conversion costs as much as the
  saved memory traffic. The last table shows accelerators with and without 16-bit units.
- **"fp32 with bf16 products costs nothing."** One product of rounded operands runs at {ratio('bf16-matmul')} of the f32 speed. Three and six
  products run at {ratio('bf16-matmul-x3')} and {ratio('bf16-matmul-x6')}, in proportion to their number.
- **"The fp32 edge is free."** Logits rounded to compute and widened again run at {ratio('bf16-mixed output=compute>f32')}, logits kept in f32 at
  {ratio('bf16-mixed')}. The conversion is within the noise, because the head's logits never leave the cache.
- **Simulated formats** round their operands in separate passes, or their sums every few products: {ratio('fp8-hybrid')} for fp8 with
  tensor scales, {ratio('bf16-mixed compute=mxfp8')} and {ratio('bf16-mixed compute=nvfp4')} with block scales (mxfp8 and nvfp4), {ratio('accumulate=f16')} and {ratio('accumulate=f16 accumulate_block=32')} with sums rounded to f16 after 256 and 32 terms.
- **Lower formats by rules**: stochastic rounding of activations, a softmax in bf16 and an update in bf16 run at
  {ratio('bf16-mixed; *: rounding=stochastic')}, {ratio('bf16-mixed; *: op=softmax compute=bf16')} and {ratio('bf16-mixed; *: op=update compute=bf16')} of the f32 speed.

## Memory

Measured peak in MB. "Plan" is the predicted peak divided by the measured peak. The other columns are the plan's parts of the peak.

{table(["precision", "peak", "to f32", "plan", "masters", "copies", "gradients", "moments", "activations", "work"], memory)}
- **"Half precision halves the memory."** Here mixed precision uses {share('bf16-mixed')} of the memory of f32. It halves only activations, keeps masters,
  gradients and moments, and adds 16-bit copies of the weights. `bf16-true` also halves weights and gradients ({share('bf16-true')}). With
  16-bit moments nearly all of the memory is halved ({share('bf16-true optimizer=bf16 rounding=stochastic')}).
- **Distribution**: of the memory of f32, {part('activations')} are activations, {part('moments')} moments, {part('masters')} weights and as much gradients. With a larger
  batch only activations grow.

## Predicted for accelerators

Milliseconds per step, from stated throughputs (`mantissa explain --target`). Predictions are within a factor of two, for a model this
small within a larger one. Formats that a target lacks are computed in formats that it has.

{table(["precision", *TARGETS], there)}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).parent.parent
    parser.add_argument("--mantissa", default=str(root / "build/mantissa"))
    parser.add_argument("--machine", required=True, help="what the page calls it: 2 cores of a Zen 5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", default=str(root / "docs/claims.md"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        results = measure(args.mantissa, folder, config(folder, args.steps), args.rounds)
    pathlib.Path(args.out).write_text(page(results, args))


if __name__ == "__main__":
    main()
