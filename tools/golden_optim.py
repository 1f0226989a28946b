#!/usr/bin/env python3
"""Golden values of the optimizers: tests/golden/optimizers.safetensors, which tests/engine/optim/golden_test.cpp reads.

Needs torch and safetensors. Every case runs 40 steps in double over four parameters, by torch.optim where it has the
optimizer, else by the formula. Weights begin, and gradients are, as start() and gradient() say: exact in f32. Weights are
kept after steps 1, 5 and 40 as "CASE.PARAMETER.STEP".

usage: golden_optim.py [FILE] [--only CASE]      --only replaces the tensors of one case in the file
"""
import math

import torch

from golden import arguments, save_case

STEPS, KEPT = 40, (1, 5, 40)
SHAPES = {"tall": (12, 5), "wide": (5, 12), "embedding": (11, 4), "vector": (9,)}
NS = (3.4445, -4.7750, 2.0315)


def start(p: int, n: int) -> torch.Tensor:
    return torch.tensor([((i * 613 + p * 97) % 257 - 128) / 256 for i in range(n)], dtype=torch.float64)


def gradient(p: int, n: int, t: int) -> torch.Tensor:
    return torch.tensor([((i * 7919 + t * 104729 + p * 31337) % 2003 - 1000.5) / 4096 for i in range(n)], dtype=torch.float64)


def rate(t: int) -> float:
    return 0.01 * (1 - t / 80)


class Lion:
    """Chen et al., 2023."""

    def __init__(self, w, decays, betas, weight_decay):
        self.w, self.betas, self.decay = w, betas, weight_decay if decays else 0.0
        self.m = torch.zeros_like(w)

    def step(self, g, lr):
        b1, b2 = self.betas
        mixed = b1 * self.m + (1 - b1) * g
        assert mixed.abs().min() > 1e-6, "a sign would hang on rounding: choose other gradients"
        self.w.mul_(1 - lr * self.decay).sub_(lr * mixed.sign())
        self.m = b2 * self.m + (1 - b2) * g


class Muon:
    """torch.optim.Muon, whose iteration runs in bfloat16, in double."""

    def __init__(self, w, momentum, nesterov, weight_decay, ns_steps):
        self.w, self.momentum, self.nesterov, self.decay, self.ns_steps = w, momentum, nesterov, weight_decay, ns_steps
        self.m = torch.zeros_like(w)
        self.torch_w = torch.nn.Parameter(w.clone())
        self.torch = torch.optim.Muon([self.torch_w], momentum=momentum, nesterov=nesterov, weight_decay=weight_decay,
                                      ns_steps=ns_steps)

    def step(self, g, lr):
        self.m.lerp_(g, 1 - self.momentum)
        u = g.lerp(self.m, self.momentum) if self.nesterov else self.m.clone()
        rows, columns = u.shape
        x = u.T if rows > columns else u
        x = x / x.norm().clamp(min=1e-7)
        a, b, c = NS
        for _ in range(self.ns_steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        x = x.T if rows > columns else x
        self.w.mul_(1 - lr * self.decay).sub_(lr * math.sqrt(max(1, rows / columns)) * x)
        self.torch_w.grad = g.clone()
        self.torch.param_groups[0]["lr"] = lr
        self.torch.step()
        assert (self.torch_w - self.w).abs().max() < 0.05, "not what torch.optim.Muon does"


class Torch:
    """One of torch.optim."""

    def __init__(self, kind, w, decays, weight_decay, **settings):
        self.w = w
        self.parameter = torch.nn.Parameter(w)
        self.optimizer = kind([self.parameter], weight_decay=weight_decay if decays else 0.0, **settings)

    def step(self, g, lr):
        self.parameter.grad = g.clone()
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        self.w = self.parameter.detach()


def adamw(w, name):
    return Torch(torch.optim.AdamW, w, w.dim() > 1, 0.1, betas=(0.9, 0.95), eps=1e-8)


def muon(nesterov):
    def make(w, name):
        return Muon(w, 0.95, nesterov, 0.1, 5) if name in ("tall", "wide") else adamw(w, name)
    return make


CASES = {
    "adamw": adamw,
    "adam": lambda w, name: Torch(torch.optim.Adam, w, w.dim() > 1, 0.0, betas=(0.9, 0.999), eps=1e-8),
    "adam_decay": lambda w, name: Torch(torch.optim.Adam, w, w.dim() > 1, 0.1, betas=(0.8, 0.95), eps=1e-6),
    "sgd": lambda w, name: Torch(torch.optim.SGD, w, w.dim() > 1, 0.0),
    "sgd_momentum": lambda w, name: Torch(torch.optim.SGD, w, w.dim() > 1, 0.1, momentum=0.9),
    "sgd_nesterov": lambda w, name: Torch(torch.optim.SGD, w, w.dim() > 1, 0.1, momentum=0.9, nesterov=True),
    "lion": lambda w, name: Lion(w, w.dim() > 1, (0.9, 0.99), 0.1),
    "adafactor": lambda w, name: Torch(torch.optim.Adafactor, w, w.dim() > 1, 0.1),
    "adafactor_slow": lambda w, name: Torch(torch.optim.Adafactor, w, w.dim() > 1, 0.0, beta2_decay=-0.5),
    "muon": muon(True),
    "muon_plain": muon(False),
}


def main() -> None:
    path, only = arguments(__doc__, "optimizers.safetensors", CASES)
    tensors = {}
    for case, make in CASES.items():
        if only not in (None, case):
            continue
        for p, (name, shape) in enumerate(SHAPES.items()):
            n = math.prod(shape)
            optimizer = make(start(p, n).reshape(shape), name)
            for t in range(1, STEPS + 1):
                optimizer.step(gradient(p, n, t).reshape(shape), rate(t))
                if t in KEPT:
                    tensors[f"{case}.{name}.{t}"] = optimizer.w.clone().contiguous()
    save_case(tensors, path, only)
    print(f"{path}: {len(tensors)} tensors written, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
