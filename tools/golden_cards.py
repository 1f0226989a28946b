#!/usr/bin/env python3
"""Makes tests/golden/cards.safetensors: results of the matrix instructions of accelerators, by MMA-Sim.

    golden_cards.py MMA_SIM [FILE] [--tiles N] [--seed S]

MMA_SIM is a source tree of github.com/microsoft/MMA-Sim (arXiv:2511.10909), made with its commit c785138. Every instruction
has N tiles of each kind of values, 4 × 4 results each:

    CARD.A-B.ACCUMULATOR.kK.a   [tiles, 4, K]   factors, in their format (tf32: in f32)
    CARD.A-B.ACCUMULATOR.kK.b   [tiles, 4, K]   factors, columns
    CARD.A-B.ACCUMULATOR.kK.c   [tiles, 4, 4]   accumulators
    CARD.A-B.ACCUMULATOR.kK.d   [tiles, 4, 4]   results

Names are those of core/numeric/card.h. The 8-bit formats of CDNA 3 are fnuz: their codes have half of the values of OCP's,
so the simulated factors are halved, and accumulators and results are scaled by 4.
"""
import argparse
import pathlib
import sys

import torch

from golden import GOLDEN

SIDE = 4
DTYPE = {"f32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16,
         "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
FNUZ = {"e4m3": torch.float8_e4m3fnuz, "e5m2": torch.float8_e5m2fnuz}
# Format to exponents of its smallest subnormal, smallest normal and largest number.
RANGE = {"f32": (-149, -126, 127), "tf32": (-136, -126, 127), "bf16": (-133, -126, 127), "f16": (-24, -14, 15),
         "e4m3": (-9, -6, 8), "e5m2": (-16, -14, 15)}
KINDS = ("normal", "wide", "cancel", "subnormal", "zeros", "special", "large", "tiny")


def instructions():
    """Yields card, formats of A and B, accumulator, architecture, class, qualifier."""
    mma = {"v100": ("Volta", []), "a100": ("Ampere", ["tf32", "f16", "bf16"]), "ada": ("Ada Lovelace", ["tf32", "f16", "bf16"]),
           "h100": ("Hopper", ["tf32", "f16", "bf16"]), "b200": ("Blackwell", ["tf32", "f16", "bf16"]),
           "rtx-blackwell": ("RTX Blackwell", ["tf32", "f16", "bf16"])}
    for d in ("f32", "f16"):
        yield "v100", "f16", "f16", d, "Volta", "mma", f"m8n8k4.{d}.f16.f16.{d}"
    for card, (arch, formats) in mma.items():
        for f in formats:
            depths = (8, 4) if f == "tf32" else (16, 8)
            for k in depths:
                if k == depths[0] and card in ("h100", "b200"):
                    continue  # by wgmma and tcgen05 below
                for d in ("f32", "f16") if f == "f16" else ("f32",):
                    yield card, f, f, d, arch, "mma", f"m16n8k{k}.{d}.{f}.{f}.{d}"
    bytes_of = [("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2"), ("e5m2", "e4m3")]
    for a, b in bytes_of:
        for d in ("f32", "f16"):
            for k in (32, 16):
                for card in ("ada", "rtx-blackwell"):
                    yield card, a, b, d, mma[card][0], "mma", f"m16n8k{k}.{d}.{a}.{b}.{d}"
            yield "h100", a, b, d, "Hopper", "wgmma", f"m64n8k32.{d}.{a}.{b}"
            yield "b200", a, b, d, "Blackwell", "tcgen05mma", f"m64n8k32.{d}.{a}.{b}"
    for card, arch, kind in (("h100", "Hopper", "wgmma"), ("b200", "Blackwell", "tcgen05mma")):
        yield card, "tf32", "tf32", "f32", arch, kind, "m64n8k8.f32.tf32.tf32"
        for f, d in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32")):
            yield card, f, f, d, arch, kind, f"m64n8k16.{d}.{f}.{f}"
    for f, qualifier in (("f16", "f32_32x32x8f16"), ("f16", "f32_32x32x4f16"), ("bf16", "f32_32x32x8bf16_1k"),
                         ("bf16", "f32_32x32x4bf16"), ("f32", "f32_32x32x2f32")):
        yield "mi250", f, f, "f32", "CDNA2", "mfma", qualifier
    for f, qualifier in (("f16", "f32_32x32x8_f16"), ("f16", "f32_32x32x4_2b_f16"), ("bf16", "f32_32x32x8_bf16"),
                         ("bf16", "f32_32x32x4_2b_bf16"), ("tf32", "f32_32x32x4_xf32"), ("f32", "f32_32x32x2_f32")):
        yield "mi300", f, f, "f32", "CDNA3", "mfma", qualifier
    name = {"e4m3": "fp8", "e5m2": "bf8"}
    for a, b in bytes_of:
        yield "mi300", a, b, "f32", "CDNA3", "mfma", f"f32_32x32x16_{name[a]}_{name[b]}"


def rounded(x, f):
    """The values as those of a format, in f32; overflow gives the largest number."""
    if f == "tf32":
        return ((x.view(torch.int32) >> 13) << 13).view(torch.float32)
    if f in ("e4m3", "e5m2"):
        x = x.clamp(-448 if f == "e4m3" else -57344, 448 if f == "e4m3" else 57344)
    return x.to(DTYPE[f]).float()


def factors(kind, f, shape, g):
    def normal():
        return torch.randn(shape, generator=g)

    def power(low, high):
        return torch.where(normal() > 0, 1.0, -1.0) * torch.exp2(low + (high - low) * torch.rand(shape, generator=g))

    tiniest, least, most = RANGE[f]
    if kind == "wide":
        x = power(max(least, -60), min(most, 60))
    elif kind == "subnormal":
        x = torch.where(normal() > 0, power(tiniest, least), power(max(least, -40), min(most, 40)))
    elif kind == "zeros":
        x = torch.where(normal() > -0.3, torch.where(normal() > 0, 0.0, -0.0), power(max(least, -60), most / 2))
    elif kind == "large":
        x = power(most - 3, most)
    elif kind == "tiny":
        x = power(max(tiniest, -80), max(least, -60))
    else:
        x = normal()
    x = rounded(x, f)
    if kind == "cancel":
        x[..., 1::2] = -x[..., 0::2] if shape[-2] == SIDE else x[..., 1::2]
    if kind == "special":
        for value in (float("inf"), -float("inf"), float("nan")):
            if f != "e4m3" or value != value:
                x = torch.where(torch.rand(shape, generator=g) < 0.02, value, x)
    return x


def accumulators(kind, d, products, shape, g):
    scale = products.abs().nan_to_num(1, 1, 1).amax(-1).clamp(2.0**-140, 2.0**126)
    x = torch.randn(shape, generator=g) * scale * torch.exp2(torch.randint(-6, 4, shape, generator=g).float())
    x = torch.where(torch.rand(shape, generator=g) < 0.2, 0.0, x)
    if kind == "special":
        x = torch.where(torch.rand(shape, generator=g) < 0.1, float("inf"), x)
    x = x.clamp(-3e38, 3e38) if kind != "special" else x
    return x.half().float() if d == "f16" else x


def tile(simulator, card, a_format, b_format, d, kind, g):
    """Returns a, b (columns), c and d of one tile."""
    a = factors(kind, a_format, (SIDE, simulator.k), g)
    b = factors("normal" if kind == "cancel" else kind, b_format, (SIDE, simulator.k), g)
    if kind == "cancel":
        b[:, 1::2] = b[:, 0::2]
    c = accumulators(kind, d, a[:, None] * b[None], (SIDE, SIDE), g)
    fnuz = card == "mi300" and a_format in FNUZ
    if fnuz:  # no infinities, and nothing that a factor of 4 rounds
        a, b, c = (torch.where(x.isinf(), 1.0, x) for x in (a, b, c))
        c = torch.where(c.abs() < 2.0**-100, 0.0, c)
    types = (FNUZ[a_format], FNUZ[b_format]) if fnuz else (DTYPE[a_format], DTYPE[b_format])
    half, quarter = (0.5, 0.25) if fnuz else (1, 1)
    result = simulator((a * half).to(types[0]), (b * half).to(types[1]).T, (c * quarter).to(DTYPE[d]))
    return a, b, c, result.float() / quarter


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mma_sim", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path, nargs="?", default=GOLDEN / "cards.safetensors")
    parser.add_argument("--tiles", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20261127)
    parser.add_argument("--only", default="", help="only instructions whose names contain this")
    args = parser.parse_args()
    sys.path.insert(0, str(args.mma_sim))
    from mmasim.simulator import amd, nv_ptx  # the simulator is beside this repository
    from safetensors.torch import save_file

    pairwise_dot = amd.pairwise_dot  # it requires f32, and gets the factors as they are
    amd.pairwise_dot = lambda a, b, flush: pairwise_dot(a.float(), b.float(), flush)

    tensors = {}
    for card, a_format, b_format, d, arch, kind, qualifier in instructions():
        simulator = getattr(amd if kind == "mfma" else nv_ptx, kind)(arch, qualifier)
        simulator.m = simulator.n = SIDE
        name = f"{card}.{a_format}-{b_format}.{d}.k{simulator.k}"
        if args.only not in name:
            continue
        g = torch.Generator().manual_seed(args.seed)
        tiles = [tile(simulator, card, a_format, b_format, d, of, g) for of in KINDS for _ in range(args.tiles)]
        assert f"{name}.a" not in tensors, name
        for part, values in zip("abcd", zip(*tiles)):
            own = {"a": DTYPE[a_format], "b": DTYPE[b_format], "c": DTYPE[d], "d": torch.float32}[part]
            tensors[f"{name}.{part}"] = torch.stack(values).to(own).contiguous()
        print(name, file=sys.stderr)
    save_file(tensors, args.file)


if __name__ == "__main__":
    main()
