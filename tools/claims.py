#!/usr/bin/env python3
"""What is said about precision in training, measured: writes docs/claims.md.

    claims.py [--mantissa build/mantissa] [--rounds 3] [--steps 12] [--out docs/claims.md]

Trains a Llama of 24M on random ids under each policy, all policies in turn, `rounds` times. Speeds are medians over steps, memory
is what the run measured of itself; times of accelerators are the plan's predictions from stated throughputs.
"""
import argparse
import json
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

SHAPE = dict(hidden_size=512, intermediate_size=1376, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8,
             vocab_size=4096, max_position_embeddings=256)
BATCH, LENGTH = 8, 256
POLICIES = {
    "32-true": "f32",
    "bf16-mixed": "bf16 mixed",
    "16-mixed": "fp16 mixed",
    "bf16-true": "bf16 true, f32 moments",
    "bf16-true optimizer=bf16 rounding=stochastic": "bf16 true, bf16 moments",
    "16-true": "fp16 true",
    "tf32": "tf32 products",
    "bf16-matmul": "f32, bf16 products",
    "bf16-matmul-x3": "f32, three bf16 products",
    "bf16-matmul-x6": "f32, six bf16 products",
    "bf16-mixed output=compute>f32": "bf16 mixed, logits rounded at the edge",
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
    """Per policy: seconds of every step but each run's first, as planned of every run, and the last run's summary and plan."""
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

    return f"""# What is said about precision, measured

Written by `tools/claims.py`: a Llama of 24M (hidden size {SHAPE['hidden_size']}, {SHAPE['num_hidden_layers']} layers, vocabulary {SHAPE['vocab_size']}), {BATCH} × {LENGTH} tokens
a step, AdamW, under {size} policies in turn, {args.rounds} runs of {args.steps} steps each, on a CPU that computes in f32. Speeds here say what
formats cost where they are converted or simulated; what they gain on an accelerator is the last table, which is predicted
and not measured.

## Speed

"To f32" is tokens per second; "plan" is the predicted time of a step to the measured one. The ids are random: the losses say
only that all of them step alike.

{table(["precision", "policy", "tokens/s", "to f32", "plan", "loss"], speed)}
- **"Half precision trains 20–50 % faster."** Here mixed precision runs at {ratio('bf16-mixed')} (bf16) and {ratio('16-mixed')} (fp16) of the f32 speed,
  true at {ratio('bf16-true')} and {ratio('16-true')}: 16-bit factors are multiplied as f32, and what they save in traffic their conversion costs. On
  accelerators with 16-bit units the last table has the other answer, and the one that lacks them as well.
- **"fp32 with bf16 products costs nothing."** One product of rounded factors runs at {ratio('bf16-matmul')} of the f32 speed; three and six
  products at {ratio('bf16-matmul-x3')} and {ratio('bf16-matmul-x6')}, which is their number.
- **"The fp32 edge is free."** Logits that are rounded to compute and widened again ({ratio('bf16-mixed output=compute>f32')}) against logits kept in f32
  ({ratio('bf16-mixed')}): the conversion is within the noise, since the head's logits never leave the cache.
- **Simulated formats** round their factors in passes of their own, or their sums every few products: {ratio('fp8-hybrid')} for fp8 under
  scales of tensors, {ratio('bf16-mixed compute=mxfp8')} and {ratio('bf16-mixed compute=nvfp4')} under scales of blocks, {ratio('accumulate=f16')} and {ratio('accumulate=f16 accumulate_block=32')} with sums rounded to f16 after 256 and 32 terms.
- **What a rule can lower** costs: activations rounded stochastically, a softmax in bf16 and an update in bf16 run at
  {ratio('bf16-mixed; *: rounding=stochastic')}, {ratio('bf16-mixed; *: op=softmax compute=bf16')} and {ratio('bf16-mixed; *: op=update compute=bf16')} of the f32 speed.

## Memory

MB, measured at the peak; "plan" is the predicted peak to the measured one; the rest is where the plan puts it.

{table(["precision", "peak", "to f32", "plan", "masters", "copies", "gradients", "moments", "activations", "work"], memory)}
- **"Half precision halves the memory."** Mixed precision takes {share('bf16-mixed')} of f32's here: it halves activations only, keeps masters, gradients
  and moments, and adds 16-bit copies of the weights. `bf16-true` halves weights and gradients, too ({share('bf16-true')}); only with
  moments of 16 bits is nearly all of it halved ({share('bf16-true optimizer=bf16 rounding=stochastic')}).
- **Where it goes**: of f32's, {part('activations')} are activations, {part('moments')} moments, {part('masters')} weights and as much again gradients; with a larger
  batch activations grow and the rest stays.

## Predicted for accelerators

Milliseconds a step, from stated throughputs (`mantissa explain --target`): within a factor of two, for a model this small
more. Formats that a target lacks are computed in what it has.

{table(["precision", *TARGETS], there)}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).parent.parent
    parser.add_argument("--mantissa", default=str(root / "build/mantissa"))
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
