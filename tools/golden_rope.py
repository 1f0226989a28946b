#!/usr/bin/env python3
"""Writes tests/kernels/rope_golden.h: inverse frequencies and attention factors that transformers forms, in f32.

Needs torch and transformers. PyTorch's f32 power is off by one unit at some places, which depend on the vector
instructions that it uses. Its plain path is off least, and nowhere in the sets below: the script checks that their powers
are those taken in double and rounded once.
"""
import os

os.environ["ATEN_CPU_CAPABILITY"] = "default"  # before torch is loaded

import contextlib
import types

import numpy as np
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
# (kind, head_dim, theta, original positions, length, factor, other numbers)
SETS = [
    ("linear", 64, 10000.0, 2048, 2048, 2.5, {}),
    ("linear", 128, 1000000.0, 8192, 8192, 8.0, {}),
    ("dynamic", 64, 10000.0, 2048, 2048, 2.0, {}),
    ("dynamic", 64, 10000.0, 2048, 2049, 2.0, {}),
    ("dynamic", 64, 10000.0, 2048, 16384, 2.0, {}),
    ("dynamic", 128, 500000.0, 4096, 9999, 3.7, {}),
    ("llama3", 128, 500000.0, 8192, 131072, 8.0, LLAMA3),
    ("llama3", 64, 500000.0, 8192, 131072, 32.0, LLAMA3),
    ("llama3", 80, 123456.7, 5000, 5000, 6.7, {"low_freq_factor": 1.3, "high_freq_factor": 3.9}),
    ("yarn", 128, 1000000.0, 32768, 131072, 4.0, {}),
    ("yarn", 64, 10000.0, 4096, 163840, 40.0, {"mscale": 1.0, "mscale_all_dim": 0.707}),
    ("yarn", 64, 150000.0, 4096, 131072, 32.0, {"truncate": False}),
    ("yarn", 96, 250000.0, 5000, 20000, 3.3, {"beta_fast": 20.0, "beta_slow": 1.5, "attention_factor": 1.25}),
    ("yarn", 48, 10000.0, 2048, 4096, 2.0, {"beta_fast": 2.0, "beta_slow": 2.0, "truncate": False}),
]


@contextlib.contextmanager
def correct_powers():
    """PyTorch's powers of f32 tensors, taken in double and rounded once."""
    plain = torch.Tensor.__pow__, torch.Tensor.__rpow__

    def power(base, exponent):
        if isinstance(exponent, float):  # PyTorch does not round such an exponent
            return plain[0](base, exponent)
        exact = np.power(np.asarray(base, dtype=np.float32).astype(np.float64), exponent.numpy().astype(np.float64))
        return torch.from_numpy(np.asarray(exact.astype(np.float32)))

    torch.Tensor.__pow__ = power
    torch.Tensor.__rpow__ = lambda exponent, base: power(base, exponent)
    yield
    torch.Tensor.__pow__, torch.Tensor.__rpow__ = plain


def frequencies(kind, head_dim, theta, original, length, factor, numbers):
    parameters = {"rope_type": kind, "rope_theta": theta, "factor": factor,
                  "original_max_position_embeddings": original, **numbers}
    config = types.SimpleNamespace(rope_parameters=parameters, head_dim=head_dim, max_position_embeddings=original,
                                   hidden_size=head_dim, num_attention_heads=1, standardize_rope_params=lambda: None)
    # As the forward pass of transformers' models does: a tensor, and none before the length is exceeded.
    grown = torch.tensor(length) if kind == "dynamic" and length > original else None
    return ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=grown)


def literal(x: float) -> str:
    mantissa, exponent = float(x).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{exponent}f"


def main() -> None:
    lines = []
    for kind, head_dim, theta, original, length, factor, numbers in SETS:
        plain, attention = frequencies(kind, head_dim, theta, original, length, factor, numbers)
        with correct_powers():
            correct, _ = frequencies(kind, head_dim, theta, original, length, factor, numbers)
        if not torch.equal(plain, correct):
            raise SystemExit(f"{kind}, {head_dim}, {theta}: PyTorch's power is not rounded correctly; take other numbers")
        values = [literal(x) for x in plain.tolist()]
        given = {"kind": f"RopeScaling::Kind::{kind}", "factor": factor, "original_positions": original,
                 **{k: str(v).lower() for k, v in numbers.items()}}
        order = ["kind", "factor", "original_positions", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
                 "attention_factor", "mscale", "mscale_all_dim", "truncate"]
        scaling = ", ".join(f".{k} = {given[k]}" for k in order if k in given)
        lines.append(f"{{{head_dim}, {theta}, {{{scaling}}}, {length}, {float(attention).hex()}, {{{', '.join(values)}}}}},")
    with open("tests/kernels/rope_golden.h", "w", encoding="utf-8") as out:
        out.write("// Made by tools/golden_rope.py: what transformers forms in f32.\n#pragma once\n\n#include <cstdint>\n#include <vector>\n\n"
                  '#include "mantissa/kernels/rope_scaling.h"\n\nnamespace mantissa::kernels {\n\n'
                  "struct GoldenFrequencies {\n  std::int64_t head_dim;\n  double theta;\n  RopeScaling scaling;\n"
                  "  std::int64_t length;\n  double attention_factor;\n  std::vector<float> values;\n};\n\n"
                  "inline const std::vector<GoldenFrequencies> kGoldenFrequencies = {\n")
        out.write("\n".join(lines))
        out.write("\n};\n\n}  // namespace mantissa::kernels\n")


if __name__ == "__main__":
    main()
