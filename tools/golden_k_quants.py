#!/usr/bin/env python3
"""Makes tests/golden/k_quants.safetensors: rows that llama.cpp's quantizer encoded as K types.

    golden_k_quants.py [FILE] [--only q3_k|q4_k|q5_k|q6_k]

    values                [16, 256] f32: a block each: normal values of several magnitudes, heavy tails, sparse ones, levels,
                          constants, zeros
    q3_k.blocks           [16, 110] u8, and so on: ggml_quantize_chunk() without an importance matrix

llama.cpp is that of the pip package xllamacpp, whose library is called directly.
"""
import ctypes
import pathlib

import torch
import xllamacpp

from golden import arguments, save_case

SEED = 20261128
TYPES = {"q3_k": (11, 110), "q4_k": (12, 144), "q5_k": (13, 176), "q6_k": (14, 210)}  # ggml's number, bytes of a block


def make_values():
    g = torch.Generator().manual_seed(SEED)
    normal = lambda: torch.randn(256, generator=g)
    tails = torch.distributions.StudentT(2.0)
    torch.manual_seed(SEED)
    rows = [normal(), 0.02 * normal(), 1e4 * normal(), 1e-7 * normal(), 1e-16 * normal(), normal().abs(), -normal().abs(),
            0.02 * tails.sample((256,)), tails.sample((256,)), normal() * (torch.rand(256, generator=g) < 0.1),
            torch.randint(-8, 8, (256,), generator=g) / 8, torch.full((256,), 0.37), torch.zeros(256),
            normal().bfloat16().float(), torch.linspace(-1, 1, 256), normal() * torch.exp2(torch.arange(256) / 32)]
    return torch.stack([row.float() for row in rows]).contiguous()


def main():
    path, only = arguments(__doc__, "k_quants.safetensors", TYPES)
    library = ctypes.CDLL(str(next(pathlib.Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    chunk = library.ggml_quantize_chunk
    chunk.restype = ctypes.c_size_t
    chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    values = make_values()
    tensors = {"values": values}
    for name, (number, size) in TYPES.items():
        blocks = torch.zeros(len(values), size, dtype=torch.uint8)
        written = chunk(number, values.data_ptr(), blocks.data_ptr(), 0, len(values), 256, None)
        assert written == blocks.numel(), (name, written)
        tensors[f"{name}.blocks"] = blocks
    save_case(tensors, path, only)


if __name__ == "__main__":
    main()
