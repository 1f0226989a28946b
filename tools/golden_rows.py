#!/usr/bin/env python3
"""Golden values of the row kernels from PyTorch, as C++ initializers for tests/kernels/{norm_golden,rope,update}_test.cpp.

usage: golden_rows.py [--only rope|rmsnorm|layernorm|adamw]      --only prints one of the groups

Needs torch. Values are hexadecimal floating-point literals, so that nothing is rounded on the way.
"""
import math

import torch

from golden import parser


def rope() -> None:
    """Tables as transformers forms them: inverse frequencies and angles in f32. cos and sin of the angle are taken in double."""
    print("// {theta, head_dim, position, i, cos, sin}")
    for theta, head_dim, positions in [(10000.0, 16, (1, 7, 1000)), (10000.0, 64, (1, 2047)), (500000.0, 64, (3, 8191)),
                                       (500000.0, 128, (5, 32767))]:
        exponent = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        inv_freq = 1.0 / (theta**exponent)
        for position in positions:
            angle = inv_freq * torch.tensor(float(position), dtype=torch.float32)
            cos, sin = angle.double().cos().float(), angle.double().sin().float()
            for i in sorted({0, 1, head_dim // 8, head_dim // 4 + 1, head_dim // 2 - 1}):
                print(f"{{{theta}, {head_dim}, {position}, {i}, {cos[i].item().hex()}f, {sin[i].item().hex()}f}},")


def row(name: str, values: torch.Tensor) -> None:
    print(f"constexpr double {name}[] = {{{', '.join(v.hex() for v in values.flatten().tolist())}}};")


def rmsnorm() -> None:
    """torch.nn.functional.rms_norm in double over 3 tokens of 8 channels, and its gradients by autograd."""
    x = torch.tensor([[math.sin(1 + 3 * i + 5 * t) * (1 + t) for i in range(8)] for t in range(3)], dtype=torch.float64)
    gain = torch.tensor([1 + math.cos(2 * i) / 4 for i in range(8)], dtype=torch.float64)
    dy = torch.tensor([[math.cos(1 + 7 * i + 11 * t) for i in range(8)] for t in range(3)], dtype=torch.float64)
    x.requires_grad_()
    gain.requires_grad_()
    y = torch.nn.functional.rms_norm(x, (8,), gain, 1e-5)
    y.backward(dy)
    row("kGoldenX", x.detach())
    row("kGoldenGain", gain.detach())
    row("kGoldenDy", dy)
    row("kGoldenY", y.detach())
    row("kGoldenDx", x.grad)
    row("kGoldenDgain", gain.grad)


def layernorm() -> None:
    """torch.nn.functional.layer_norm in double over the same tokens, and its gradients by autograd."""
    x = torch.tensor([[math.sin(1 + 3 * i + 5 * t) * (1 + t) for i in range(8)] for t in range(3)], dtype=torch.float64)
    gain = torch.tensor([1 + math.cos(2 * i) / 4 for i in range(8)], dtype=torch.float64)
    bias = torch.tensor([math.sin(3 * i) / 2 for i in range(8)], dtype=torch.float64)
    dy = torch.tensor([[math.cos(1 + 7 * i + 11 * t) for i in range(8)] for t in range(3)], dtype=torch.float64)
    for value in (x, gain, bias):
        value.requires_grad_()
    y = torch.nn.functional.layer_norm(x, (8,), gain, bias, 1e-5)
    y.backward(dy)
    row("kGoldenBias", bias.detach())
    row("kGoldenLayerY", y.detach())
    row("kGoldenLayerDx", x.grad)
    row("kGoldenLayerDgain", gain.grad)
    row("kGoldenLayerDbias", bias.grad)


def adamw() -> None:
    """torch.optim.AdamW in double: 4 elements, 3 updates."""
    w = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64))
    optimizer = torch.optim.AdamW([w], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    gradients = torch.tensor([[math.sin(1 + 2 * i + 3 * t) for i in range(4)] for t in range(3)], dtype=torch.float64)
    row("kGoldenWeights", w.detach())
    row("kGoldenGradients", gradients)
    for gradient in gradients:
        w.grad = gradient.clone()
        optimizer.step()
    row("kGoldenUpdated", w.detach())
    row("kGoldenFirstMoment", optimizer.state[w]["exp_avg"])
    row("kGoldenSecondMoment", optimizer.state[w]["exp_avg_sq"])


if __name__ == "__main__":
    groups = {"rope": rope, "rmsnorm": rmsnorm, "layernorm": layernorm, "adamw": adamw}
    only = parser(__doc__, groups).parse_args().only
    for name, write in groups.items():
        if only in (None, name):
            write()
