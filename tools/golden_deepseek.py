#!/usr/bin/env python3
"""Makes tests/golden/deepseek.safetensors: fp8 with f32 scales of blocks, as DeepSeek-V3 computes them (inference/kernel.py).

    golden_deepseek.py [FILE]

    x                 [131, 136] f32: rows of many magnitudes, zeros
    features, tokens  [131, 136] f32: element × scale of act_quant, 128 elements along a row, and along a column
    weight            [131, 136] f32: the same in squares of 128 × 128, weight_dequant of such codes
    rows              [131, 136] f32: a scale for each row, as torchao's rowwise recipe without powers of two has it

scale = largest magnitude / 448 in f32, code = e4m3(x / scale). torchao multiplies by 448 / amax, rounded, so its codes may
differ where x / scale is within an f32 rounding of the middle of two codes.
"""
import torch

from golden import arguments, save_case

SEED, ROWS, WIDTH, BLOCK = 20261128, 131, 136, 128


def decoded(x):
    """Elements times scales of one block."""
    scale = x.abs().max() / 448
    return torch.zeros_like(x) if scale == 0 else (x / scale).to(torch.float8_e4m3fn).float() * scale


def blocks(x, rows, width):
    out = torch.empty_like(x)
    for r in range(0, x.shape[0], rows):
        for c in range(0, x.shape[1], width):
            out[r:r + rows, c:c + width] = decoded(x[r:r + rows, c:c + width])
    return out


def main():
    path, _ = arguments(__doc__, "deepseek.safetensors", [])
    g = torch.Generator().manual_seed(SEED)
    x = torch.randn(ROWS, WIDTH, generator=g) * torch.exp2(torch.randint(-20, 6, (ROWS, 1), generator=g).float())
    x[:128, 128:] = 0
    x[128:, 128:] *= torch.exp2(torch.randint(-9, 1, (WIDTH - BLOCK,), generator=g).float())
    save_case({
        "x": x,
        "features": blocks(x, 1, BLOCK),
        "tokens": blocks(x, BLOCK, 1),
        "weight": blocks(x, BLOCK, BLOCK),
        "rows": blocks(x, 1, WIDTH),
    }, path, None)


if __name__ == "__main__":
    main()
