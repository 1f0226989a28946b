#!/usr/bin/env python3
"""Compares optimizers and averages of weights that torch.optim lacks with their packages, in runs of Mantissa under 64-true.

A small Llama trains on text. PyTorch computes the same steps in f64 with transformers'
model, whose casts to float32 are casts to float64, and

- AdamWScheduleFree of the package schedulefree (its authors'): the weights in training, and those of eval(), with warm-up;
- AdEMAMix and Adan of the package pytorch_optimizer;
- the averages of torch.optim.swa_utils.get_ema_multi_avg_fn over torch.optim.AdamW.

The weights in training and those for evaluation are compared after the last step: those of the state, in f64, and of the saved model.

Needs torch, transformers, safetensors, schedulefree and pytorch_optimizer.

usage: tools/check_optimizers.py MANTISSA
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from pytorch_optimizer import AdEMAMix, Adan
from safetensors.torch import load_file
from schedulefree import AdamWScheduleFree
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import LlamaConfig, LlamaForCausalLM

from families import AllF64, widened

STEPS, ROWS, LENGTH, WARMUP, LR, DECAY, EMA = 12, 4, 32, 3, 1e-2, 0.1, 0.9
EPS = 1e-8
CONFIG = LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, vocab_size=256,
                     max_position_embeddings=LENGTH, tie_word_embeddings=False)


def groups(model):
    """Weight decay acts on tensors of two or more dimensions, as in Mantissa."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.ndim >= 2], "weight_decay": DECAY},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}]


class Peer:
    """An optimizer of PyTorch, with the rate of each step, and the weights that it evaluates."""

    def __init__(self, model, make, own_warmup=False, ema=0.0):
        self.model, self.optimizer, self.own_warmup = model, make(groups(model)), own_warmup
        self.average = get_ema_multi_avg_fn(ema) if ema else None
        self.averages = [p.detach().clone() for p in model.parameters()]

    def step(self, t):
        if not self.own_warmup:
            for group in self.optimizer.param_groups:
                group["lr"] = LR * min(1.0, t / WARMUP)
        self.optimizer.step()
        if self.average:
            self.average(self.averages, [p.detach() for p in self.model.parameters()], t)

    def evaluated(self):
        if self.average:
            return {n: a for (n, _), a in zip(self.model.named_parameters(), self.averages)}
        if self.own_warmup:
            self.optimizer.eval()
        return {n: p.detach() for n, p in self.model.named_parameters()}


CASES = {
    "schedule-free-adamw": (
        "name = \"schedule-free-adamw\"\nbetas = [0.9, 0.999]",
        lambda m: Peer(m, lambda g: AdamWScheduleFree(g, lr=LR, betas=(0.9, 0.999), eps=EPS, warmup_steps=WARMUP), own_warmup=True)),
    "ademamix": (
        "name = \"ademamix\"\nalpha = 5.0\nbeta3 = 0.999\nmix_warmup = 8",
        lambda m: Peer(m, lambda g: AdEMAMix(g, lr=LR, betas=(0.9, 0.999, 0.999), alpha=5.0, t_alpha_beta3=8, eps=EPS, weight_decouple=True))),
    "ademamix, without its warm-up": (
        "name = \"ademamix\"\nalpha = 2.0\nbeta3 = 0.9999\nmix_warmup = 1",
        lambda m: Peer(m, lambda g: AdEMAMix(g, lr=LR, betas=(0.9, 0.999, 0.9999), alpha=2.0, eps=EPS, weight_decouple=True))),
    "adan": (
        "name = \"adan\"",
        lambda m: Peer(m, lambda g: Adan(g, lr=LR, betas=(0.98, 0.92, 0.99), eps=EPS, weight_decouple=False))),
    "adamw, ema_decay = 0.9": (
        f"name = \"adamw\"\nbetas = [0.9, 0.95]\nema_decay = {EMA}",
        lambda m: Peer(m, lambda g: torch.optim.AdamW(g, lr=LR, betas=(0.9, 0.95), eps=EPS), ema=EMA)),
}


def run(mantissa, folder, name, optimizer):
    config = folder / f"{name}.toml"
    config.write_text(f"""[run]
steps = {STEPS}
[model]
path = "{folder}/start"
[data]
source = "{folder}/text.txt"
tokenizer = "byte"
sequence_length = {LENGTH}
shuffle = false
validation = 0
[batch]
global_batch_size = {ROWS}
[optimizer]
{optimizer}
lr = {LR}
eps = {EPS}
weight_decay = {DECAY}
max_grad_norm = 0
[schedule]
name = "constant"
warmup_steps = {WARMUP}
[precision]
policy = "64-true"
""")
    out = folder / "runs" / name
    subprocess.run([mantissa, "train", str(config), "--out", str(out), "--quiet"], check=True)
    return out


def train(model, peer, text):
    """Trains the model in place, on the rows that Mantissa has without shuffling."""
    if peer.own_warmup:
        peer.optimizer.train()
    for t in range(1, STEPS + 1):
        begin = (t - 1) * ROWS * LENGTH
        ids = torch.tensor([list(text[begin + r * LENGTH:begin + (r + 1) * LENGTH + 1]) for r in range(ROWS)])
        logits = model(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, CONFIG.vocab_size), ids[:, 1:].reshape(-1))
        peer.optimizer.zero_grad()
        loss.backward()
        peer.step(t)
    return peer


def largest(got, want):
    """Returns the largest difference, in units of the largest weight."""
    names = [n for n in want if n in got]
    assert len(names) == len(want), sorted(set(want) - set(got))
    return max((got[n].double() - want[n]).abs().max().item() for n in names) / max(w.abs().max().item() for w in want.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mantissa")
    mantissa = str(pathlib.Path(parser.parse_args().mantissa).resolve())
    torch.manual_seed(1)
    # A gradient's sum has fewer than 2^12 terms, and a step divides by its size: 12 steps of about 2^12 roundings of f64.
    tolerance = STEPS * 2**12 * 2**-53
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        start = LlamaForCausalLM(CONFIG)
        start.save_pretrained(folder / "start")
        text = bytes((37 * i * i + 11 * i) % 91 + 32 for i in range((STEPS * ROWS + 2) * LENGTH))
        (folder / "text.txt").write_bytes(text)
        for name, (optimizer, make) in CASES.items():
            out = run(mantissa, folder, name.replace(" ", "").replace(",", "-").replace("=", "-"), optimizer)
            with AllF64():
                model = widened(start)
                peer = train(model, make(model), text)
            state = load_file(out / "state" / f"step-{STEPS:08}" / "state.safetensors")
            trained = {n: p.detach().clone() for n, p in model.named_parameters()}
            error = largest({n.removeprefix("master."): w for n, w in state.items() if n.startswith("master.")}, trained)
            evaluated = peer.evaluated()
            averages = {n.removeprefix("average."): w for n, w in state.items() if n.startswith("average.")}
            of_averages = largest(averages or {n.removeprefix("master."): w for n, w in state.items()}, evaluated)
            saved = largest(load_file(out / "model" / "model.safetensors"), evaluated)
            print(f"{name:32} weights {error:.1e}   weights for evaluation {of_averages:.1e}   model/ (f32) {saved:.1e}")
            worst = max(worst, error, of_averages)
            if saved > 2**-24 + tolerance:
                sys.exit(f"{name}: model/ has other weights than {peer.optimizer.__class__.__name__} evaluates")
    if worst > tolerance:
        sys.exit(f"largest difference {worst:.1e} is more than {tolerance:.1e}")
    print(f"all within {tolerance:.1e} of the largest weight")


if __name__ == "__main__":
    main()
