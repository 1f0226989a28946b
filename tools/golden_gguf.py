#!/usr/bin/env python3
"""Writes tests/gguf/golden_quants.h: blocks of every quantised type of GGUF files, and their values.

The values are those of the pip package gguf, whose f32 arithmetic gives the same bits as ggml-quants.c (all
products are exact). Blocks are random bytes, with scales that are ordinary, the largest of f16, subnormal,
and negative. Usage: tools/golden_gguf.py > tests/gguf/golden_quants.h
"""

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

# Name of the enumerator, and the offsets of f16 values in a block.
TYPES = {
    "q4_0": ("Q4_0", [0]),
    "q4_1": ("Q4_1", [0, 2]),
    "q5_0": ("Q5_0", [0]),
    "q5_1": ("Q5_1", [0, 2]),
    "q8_0": ("Q8_0", [0]),
    "q2_k": ("Q2_K", [80, 82]),
    "q3_k": ("Q3_K", [108]),
    "q4_k": ("Q4_K", [0, 2]),
    "q5_k": ("Q5_K", [0, 2]),
    "q6_k": ("Q6_K", [208]),
}
SCALES = [(0.0123, 0.37), (65504.0, -65504.0), (6e-8, 5.9e-5), (-1.5, 0.0)]


def fnv(values):
    """FNV-1a of 64 bits over the bytes of the values."""
    state = 0xCBF29CE484222325
    for byte in values.tobytes():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def lines(numbers, width):
    items = [f"0x{n:0{width}x}" for n in numbers]
    per_line = 100 // (width + 4)
    return ",\n     ".join(", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line))


def q8_0_rows(rng):
    """Values whose codes and scales are at the edges of Q8_0."""
    rows = np.zeros((5, 32), np.float32)
    rows[0] = rng.standard_normal(32)
    rows[1] = np.arange(32) - 15.5  # codes with halves
    rows[2] = 1e-45
    rows[3] = rng.standard_normal(32) * 1e6
    rows[3, 0] = 8.3e6
    return rows


def main():
    rng = np.random.default_rng(11)
    print("// Written by tools/golden_gguf.py.")
    print("#pragma once\n\n#include <array>\n#include <cstdint>\n#include <vector>\n")
    print('#include "mantissa/gguf/tensor_type.h"\n')
    print("namespace mantissa::gguf {\n")
    print("/// Blocks of a type, the bits of their first 8 values each, and FNV-1a of the bits of all values.")
    print("struct GoldenBlocks {\n  TensorType type;\n  std::vector<std::uint8_t> stored;")
    print("  std::vector<std::uint32_t> first;\n  std::uint64_t hash;\n};\n")
    print("inline const std::vector<GoldenBlocks> kGoldenBlocks = {")
    for name, (python_name, offsets) in TYPES.items():
        qtype = GGMLQuantizationType[python_name]
        block, size = GGML_QUANT_SIZES[qtype]
        stored = rng.integers(0, 256, (len(SCALES), size), dtype=np.uint8)
        for i, scales in enumerate(SCALES):
            for offset, scale in zip(offsets, scales):
                stored[i, offset : offset + 2] = np.array([scale], np.float16).view(np.uint8)
        values = quants.dequantize(stored, qtype).astype(np.float32)
        first = values[:, :8].ravel().view(np.uint32)
        print(f"    {{TensorType::{name},\n     {{{lines(stored.ravel(), 2)}}},")
        print(f"     {{{lines(first, 8)}}},\n     0x{fnv(values):016x}}},")
    print("};\n")
    rows = q8_0_rows(rng)
    codes = quants.quantize(rows, GGMLQuantizationType.Q8_0)
    print("/// Values and their codes as Q8_0.")
    print(f"inline const std::vector<std::uint32_t> kGoldenValues = {{\n     {lines(rows.ravel().view(np.uint32), 8)}}};\n")
    print(f"inline const std::vector<std::uint8_t> kGoldenCodes = {{\n     {lines(codes.ravel(), 2)}}};\n")
    print("}  // namespace mantissa::gguf")


if __name__ == "__main__":
    main()
