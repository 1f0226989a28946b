#!/usr/bin/env python3
"""Makes tests/golden/quants.safetensors: matrices that bitsandbytes quantized to int8 and nf4 on a CPU.

    golden_quants.py [FILE] [--only nf4|double|int8]

    values                [32, 640] f32: normal rows of several magnitudes, outliers, zeros, ties of nf4
    nf4.codes             [32, 320] u8, nf4.scales [320]: quantize_4bit(blocksize=64)
    nf4.values            [8, 640]: dequantize_4bit of the first rows
    double.mean           [1], double.groups [2], double.codes [320] u8: the scales under double quantization
    double.values         [8, 640]: dequantize_4bit of the first rows with these scales
    int8.codes            [32, 640] u8 (two's complement), int8.absmax [32]: int8_vectorwise_quant
    int8.values           [8, 640]: int8_vectorwise_dequant of the first rows

bitsandbytes' CPU library finds codes of the scales in a table that is coarser than the data type, so some are not the
nearest. The codes here are the nearest ones, as on a GPU; they differ from the library's by at most one. The mean is
summed in f64. With --only, the tensors of the other groups stay as they are in the file.
"""
import copy

import bitsandbytes.functional as F
import torch

from golden import arguments, save_case

SEED = 20261123
ROWS, WIDTH, SHOWN = 32, 640, 8


def make_values():
    g = torch.Generator().manual_seed(SEED)
    x = torch.randn(ROWS, WIDTH, generator=g) * torch.exp2(torch.randint(-12, 4, (ROWS, 1), generator=g).float())
    x[3, ::97] *= 40  # outliers
    x[4, 64:128] = 0
    x[5] = torch.randn(WIDTH, generator=g) * torch.exp2(torch.randint(-40, 10, (WIDTH,), generator=g).float())
    code = F.get_4bit_type("nf4", device="cpu")
    middles = (code[:-1] + code[1:]) / 2
    x[6, :64] = torch.cat([torch.ones(1), middles, -middles, torch.zeros(33)])
    x[7] *= 1e-36  # of normal numbers, some below 1e-38
    return x


def main():
    path, only = arguments(__doc__, "quants.safetensors", ["nf4", "double", "int8"])
    x = make_values()
    codes, state = F.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=False)
    shown = F.dequantize_4bit(codes, state)[:SHOWN].clone()

    mean = state.absmax.double().mean().float()
    difference = state.absmax - mean
    dynamic = F.create_dynamic_map(signed=True)
    groups, scale_codes = [], []
    for part in difference.split(256):
        most = part.abs().max()
        y = torch.clamp(part * (1.0 / most.clamp(min=1e-38)), -1, 1)
        scale_codes.append(torch.bucketize(y, (dynamic[:-1] + dynamic[1:]) / 2).to(torch.uint8))
        groups.append(most)
    scale_codes, groups = torch.cat(scale_codes), torch.stack(groups)
    theirs, double = F.quantize_4bit(x, blocksize=64, quant_type="nf4", compress_statistics=True)
    assert torch.equal(theirs, codes)
    assert (double.absmax.int() - scale_codes.int()).abs().max() <= 1
    assert torch.allclose(double.offset, mean, rtol=3e-7) and torch.allclose(double.state2.absmax, groups, rtol=3e-7)
    ours = copy.copy(double)
    ours.state2 = copy.copy(double.state2)
    ours.absmax, ours.offset, ours.state2.absmax = scale_codes, mean, groups
    shown_double = F.dequantize_4bit(codes, ours)[:SHOWN].clone()

    eight, absmax, _ = F.int8_vectorwise_quant(x.clone())
    tensors = {
        "values": x,
        "nf4.codes": codes.reshape(ROWS, WIDTH // 2),
        "nf4.scales": state.absmax,
        "nf4.values": shown,
        "double.mean": mean.reshape(1),
        "double.groups": groups,
        "double.codes": scale_codes,
        "double.values": shown_double,
        "int8.codes": eight.view(torch.uint8),
        "int8.absmax": absmax,
        "int8.values": F.int8_vectorwise_dequant(eight, absmax)[:SHOWN].clone(),
    }
    save_case(tensors, path, only)


if __name__ == "__main__":
    main()
