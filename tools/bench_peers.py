#!/usr/bin/env python3
"""Training speed beside PyTorch: the same Llama, batch, AdamW, clipping and threads, the contenders taking turns.

    bench_peers.py [--mantissa build/mantissa] [--shape 5M|24M] [--threads N] [--rounds 4] [--steps 4] [--no-compile]

Whole optimizer steps on a single batch of random ids; tokens per second are medians over all steps, the first of each turn left out. It
prints and never judges: on a shared machine only the ratios mean something.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import warnings

import numpy
import torch
import torch.nn.functional as F
from torch import nn

SHAPES = {
    "5M": dict(hidden_size=256, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=4, intermediate_size=688,
               vocab_size=256),
    "24M": dict(hidden_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=8, intermediate_size=1376,
                vocab_size=4096),
}
EPS, THETA = 1e-5, 10000.0
SETTINGS = dict(lr=3e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


class Block(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, intermediate_size, **_):
        super().__init__()
        self.heads = num_attention_heads
        self.norm, self.mlp_norm = (nn.RMSNorm(hidden_size, EPS) for _ in range(2))
        self.q, self.k, self.v, self.o = (nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(hidden_size, intermediate_size, bias=False) for _ in range(2))
        self.down = nn.Linear(intermediate_size, hidden_size, bias=False)

    def rotate(self, x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x, cos, sin):
        y = self.norm(x)
        q, k, v = (p(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = self.rotate(q, cos, sin).to(v.dtype), self.rotate(k, cos, sin).to(v.dtype)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, shape, length):
        super().__init__()
        self.embed = nn.Embedding(shape["vocab_size"], shape["hidden_size"])
        self.blocks = nn.ModuleList(Block(**shape) for _ in range(shape["num_hidden_layers"]))
        self.norm = nn.RMSNorm(shape["hidden_size"], EPS)
        self.head = nn.Linear(shape["hidden_size"], shape["vocab_size"], bias=False)
        head_dim = shape["hidden_size"] // shape["num_attention_heads"]
        angle = torch.arange(length)[:, None] / THETA ** (torch.arange(0, head_dim, 2) / head_dim)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


class Torch:
    """A contender: whole training steps in this process."""

    def __init__(self, name, shape, ids, autocast=False, compiled=False):
        self.name, self.ids, self.autocast = name, ids, autocast
        self.model = Llama(shape, ids.shape[1] - 1)
        self.run = torch.compile(self.model) if compiled else self.model
        matrices = [p for p in self.model.parameters() if p.ndim == 2]
        gains = [p for p in self.model.parameters() if p.ndim < 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices}, {"params": gains, "weight_decay": 0.0}], fused=True, **SETTINGS)

    def step(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            loss = self.run(self.ids[:, :-1], self.ids[:, 1:])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def turn(self, steps):
        tokens, speeds = self.ids[:, 1:].numel(), []
        for _ in range(steps + 1):
            start = time.perf_counter()
            self.step()
            speeds.append(tokens / (time.perf_counter() - start))
        return speeds[1:]


class Mantissa:
    """A contender: `mantissa train` on the same shape, its own tokens_per_second."""

    def __init__(self, name, program, precision, shape, ids, threads, scratch):
        self.name, self.program, self.scratch, self.turns = name, program, scratch, 0
        self.arguments = ["--precision", precision, "--threads", str(threads), "--quiet"]
        rows, length = ids.shape[0], ids.shape[1] - 1
        dtype = "<u2" if shape["vocab_size"] < 65536 else "<u4"
        numpy.concatenate([ids[:, :-1].flatten().numpy(), [0]]).astype(dtype).tofile(scratch / "tokens.bin")
        fields = "\n".join(f"{key} = {value}" for key, value in shape.items())
        self.config = f"""[model]
model_type = "llama"
{fields}
rms_norm_eps = {EPS}
rope_theta = {THETA}
max_position_embeddings = {length}
[data]
source = "tokens.bin"
format = "tokens"
sequence_length = {length}
shuffle = false
validation = 0
[batch]
global_batch_size = {rows}
micro_batch_size = {rows}
[schedule]
name = "constant"
warmup_steps = 0
"""

    def turn(self, steps):
        self.turns += 1
        config, out = self.scratch / "run.toml", self.scratch / f"{self.name}-{self.turns}"
        config.write_text(f"[run]\nsteps = {steps + 1}\n" + self.config)
        done = subprocess.run([self.program, "train", config, "--out", out, *self.arguments], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"mantissa train failed:\n{done.stderr}")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        return [line["tokens_per_second"] for line in lines if "tokens_per_second" in line][1:]


def contenders(args, ids, scratch):
    shape = SHAPES[args.shape]
    yield Torch("PyTorch f32", shape, ids)
    yield Torch("PyTorch bf16 autocast", shape, ids, autocast=True)
    if args.compile:
        for name, autocast in (("PyTorch f32, compiled", False), ("PyTorch bf16 autocast, compiled", True)):
            contender = Torch(name, shape, ids, autocast, compiled=True)
            try:
                contender.step()
            except Exception as error:  # whatever a compiler toolchain that is not there may raise
                print(f"{name}: left out, torch.compile does not work here ({type(error).__name__})")
            else:
                yield contender
    if pathlib.Path(args.mantissa).exists():
        yield Mantissa("Mantissa 32-true", args.mantissa, "32-true", shape, ids, args.threads, scratch)
        yield Mantissa("Mantissa bf16-mixed", args.mantissa, "bf16-mixed", shape, ids, args.threads, scratch)
    else:
        print(f"{args.mantissa} is not there: PyTorch alone")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default=str(pathlib.Path(__file__).parent.parent / "build/mantissa"))
    parser.add_argument("--shape", choices=SHAPES, default="5M")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4, help="timed steps of one turn")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    ids = torch.randint(0, SHAPES[args.shape]["vocab_size"], (args.batch, args.length + 1))
    speeds = {}
    with tempfile.TemporaryDirectory() as scratch:
        field = list(contenders(args, ids, pathlib.Path(scratch)))
        for _ in range(args.rounds):
            for contender in field:
                speeds.setdefault(contender.name, []).extend(contender.turn(args.steps))
    print(f"\nLlama {args.shape}, {args.batch} x {args.length} tokens a step, {args.threads} threads, PyTorch {torch.__version__}, "
          f"{args.rounds} turns of {args.steps} steps")
    base = statistics.median(speeds["PyTorch f32"])
    own = statistics.median(speeds["Mantissa 32-true"]) if "Mantissa 32-true" in speeds else None
    print(f"{'':32} {'tokens/s':>9} {'quartiles':>13} {'/ PyTorch f32':>14}" + (f" {'/ Mantissa f32':>15}" if own else ""))
    for name, values in speeds.items():
        median = statistics.median(values)
        low, _, high = statistics.quantiles(values, n=4)
        print(f"{name:32} {median:9.0f} {f'{low:.0f}-{high:.0f}':>13} {median / base:14.2f}" + (f" {median / own:15.2f}" if own else ""))


if __name__ == "__main__":
    main()
