#!/usr/bin/env python3
"""Makes tests/golden/cards.safetensors: results of the matrix instructions of accelerators, by MMA-Sim.

    golden_cards.py MMA_SIM [FILE] [--tiles N] [--seed S]

MMA_SIM is a source tree of github.com/microsoft/MMA-Sim (arXiv:2511.10909), made with its commit c785138. Every instruction
has N tiles of each kind of values, 4 × 4 results each:

    CARD.A-B.ACCUMULATOR.kK.a   [tiles, 4, K]   factors, in their format (tf32: in f32)
    CARD.A-B.ACCUMULATOR.kK.b   [tiles, 4, K]   factors, columns
    CARD.A-B.ACCUMULATOR.kK.c   [tiles, 4, 4]   accumulators
    CARD.A-B.ACCUMULATOR.kK.d   [tiles, 4, 4]   results

Blocks (mxfp8, mxfp4, nvfp4) have factors in f32, whose lowest eight bits are the code of the scale: coded_element() of
core/numeric/card_sum.h. Names are those of core/numeric/card.h. The 8-bit formats of CDNA 3 are fnuz: their codes have half of the values of OCP's,
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
# Format of blocks to the formats of its elements and scales, the elements of a scale, and k.
BLOCKS = {"mxfp8": ("e4m3", "ue8m0", 32, 32), "mxfp8_e5m2": ("e5m2", "ue8m0", 32, 32), "mxfp4": ("e2m1", "ue8m0", 32, 64),
          "nvfp4": ("e2m1", "ue4m3", 16, 64)}
FOURS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
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


def block_instructions():
    """The same for blocks, whose accumulators are f32."""
    pairs = [("mxfp8", "mxfp8"), ("mxfp8", "mxfp8_e5m2"), ("mxfp8_e5m2", "mxfp8"), ("mxfp8_e5m2", "mxfp8_e5m2"),
             ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4")]
    for a, b in pairs:
        (of_a, scale, per_scale, k), of_b = BLOCKS[a], BLOCKS[b][0]
        formats = f"{of_a}.{of_b}"
        yield "b200", a, b, "f32", "Blackwell", "tcgen05mma_block_scale", f"m128n8k{k}.block{per_scale}.f32.{formats}.{scale}"
        yield ("rtx-blackwell", a, b, "f32", "RTX Blackwell", "mma_block_scale",
               f"m16n8k{k}.block{per_scale}.f32.{formats}.f32.{scale}")


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


def block_factors(kind, f, simulator, g):
    """Returns elements [SIDE, k], their codes if they have 4 bits, and the codes of their scales."""
    element, scale, per_scale, k = BLOCKS[f]
    if element == "e2m1":
        codes = torch.randint(0, 16, (SIDE, k), generator=g)
        if kind == "zeros":
            codes = torch.where(torch.rand(codes.shape, generator=g) < 0.7, codes & 8, codes)
        if kind == "subnormal":
            codes &= 9
        values = torch.tensor(FOURS + tuple(-x for x in FOURS))[codes]
    else:
        codes, values = None, factors({"wide": "normal", "special": "normal"}.get(kind, kind), element, (SIDE, k), g)
    count = (SIDE, k // per_scale)
    if scale == "ue8m0":
        near = torch.randint(-6, 7, count, generator=g) + 127
        scales = torch.randint(0, 255, count, generator=g) if kind in ("wide", "tiny") else near
        nan = 255
    else:
        scales = torch.randint(0, 127, count, generator=g) if kind in ("wide", "tiny") else \
            torch.randint(40, 80, count, generator=g)
        if kind in ("zeros", "subnormal"):
            scales = torch.where(torch.rand(count, generator=g) < 0.5, scales % 8, scales)
        nan = 127
    if kind == "special":
        scales = torch.where(torch.rand(count, generator=g) < 0.1, nan, scales)
    return values, codes, scales.to(torch.uint8)


def block_tile(simulator, a_format, b_format, kind, g):
    """Returns a, b (columns), c and d of one tile of blocks."""
    sides, coded = [], []
    for f in (a_format, b_format):
        values, codes, scales = block_factors(kind, f, simulator, g)
        element, _, per_scale, _ = BLOCKS[f]
        own = (codes[:, 1::2] << 4 | codes[:, 0::2]).to(torch.uint8) if element == "e2m1" else values.to(DTYPE[element])
        sides.append((values, own, scales))
        every = scales.repeat_interleave(per_scale, 1).to(torch.int32)
        coded.append((values.view(torch.int32) | every).view(torch.float32))
    (va, a, sa), (vb, b, sb) = sides

    def decoded(scales):
        return scales.view(simulator.s_type).float().nan_to_num(1).repeat_interleave(simulator.block_size, 1)

    products = (va * decoded(sa))[:, None].double() * (vb * decoded(sb))[None].double()
    c = accumulators("normal", "f32", products.clamp(-1e37, 1e37).float(), (SIDE, SIDE), g)
    d = simulator(a, b.T, c, sa.view(simulator.s_type), sb.view(simulator.s_type).T)
    return coded[0], coded[1], c, d


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
    for card, a_format, b_format, d, arch, kind, qualifier in block_instructions():
        simulator = getattr(nv_ptx, kind)(arch, qualifier)
        simulator.m = simulator.n = SIDE
        name = f"{card}.{a_format}-{b_format}.{d}.k{simulator.k}"
        if args.only not in name:
            continue
        g = torch.Generator().manual_seed(args.seed)
        tiles = [block_tile(simulator, a_format, b_format, of, g) for of in KINDS for _ in range(args.tiles)]
        for part, values in zip("abcd", zip(*tiles)):
            tensors[f"{name}.{part}"] = torch.stack(values).contiguous()
        print(name, file=sys.stderr)
    save_file(tensors, args.file)


if __name__ == "__main__":
    main()
