#!/usr/bin/env python3
"""Makes tests/golden/blocks.safetensors: what other implementations make of blocks under scales.

    golden_blocks.py MICROXCALING AO TRANSFORMER_ENGINE [FILE] [--only mx|text|nv|scale|recipe]

The first three are source trees of microsoft/microxcaling, pytorch/ao and NVIDIA/TransformerEngine. Nothing of them is
built: the parts that are used are plain PyTorch. Tensors are f32, [blocks, 32], unless stated.

    mx.values            blocks of many kinds, ten of each
    mx.mxfp8, mx.mxfp8-e5m2, mx.mxfp4
                         microxcaling's quantization of them: rounding "even", shared exponent "max", no custom_cuda
    text.values          blocks where microxcaling departs from the OCP text (docs/numerics.md, "Formats")
    text.mxfp8, .mxfp8-e5m2, .mxfp4
                         torchao's to_mx of them, scaling mode FLOOR
    nv.values            one tensor each, a row a tensor of 20 blocks of 16
    nv.scale             [tensors]: its scale, amax / 2688
    nv.nvfp4             element times e4m3 scale, the tensor's scale left out, by Transformer Engine's reference
    scale.values         blocks that begin with zero, subnormals, inf, nan, the largest values of f32 and of elements, and
                         powers of two, with their neighbours; and blocks of the kinds above
    scale.MODE.FORMAT    [blocks]: e8m0 codes, uint8, by torchao's to_mx; MODE is floor, ceil, even or rceil
    element.MODE.FORMAT  values of the elements, bf16
    recipe.values        [64, 48]: a matrix, a row a token
    recipe.square        its nvfp4 under scales of 16 x 16, by Transformer Engine's reference; as nv.nvfp4
    recipe.hadamard      its random Hadamard transform along the tokens, by the same, with recipe.signs [16]
    recipe.rotated       the nvfp4 of that, along the tokens
    recipe.scales        [2]: the scales of the tensors recipe.square and recipe.rotated

Each is held against a second implementation before it is written: microxcaling against torchao, Transformer Engine
against torchao where the scale of a block is above torchao's smallest, 2^-6. With --only, the tensors
of the other groups stay as they are in the file.
"""
import ast
import pathlib
import sys

import torch

from golden import GOLDEN, parser, save_case

SEED = 20260601
EACH = 10
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def power(low, high, shape, generator):
    return torch.exp2(low + (high - low) * torch.rand(shape, generator=generator))


def kinds(generator):
    """Name to values of EACH blocks."""
    shape = (EACH, 32)

    def normal():
        return torch.randn(shape, generator=generator)

    def sign():
        return torch.where(normal() > 0, 1.0, -1.0)

    block = power(-60, 60, (EACH, 1), generator)
    grid = torch.randint(0, 65, shape, generator=generator) / 8
    made = {
        "normal": normal(),
        "wide": sign() * power(-15, 15, shape, generator),
        "wider": sign() * power(-140, 100, shape, generator),
        "narrow": sign() * (1 + power(-12, -4, shape, generator)) * block,
        "large": sign() * power(120, 127.99, shape, generator),
        "small": normal() * power(-125, -110, (EACH, 1), generator),
        "subnormal": sign() * torch.randint(0, 1 << 22, shape, generator=generator) * 2.0**-149,
        # Up to the next power of two above the largest element: the last quarter or eighth saturates.
        "saturating": sign() * (1.4 + 0.59 * torch.rand(shape, generator=generator)) * torch.exp2(block.log2().round()),
        # Eighths up to 8: elements of e2m1 and what lies in the middle of two. Times 1/16: of e4m3's smallest ones.
        "ties": sign() * grid,
        "small ties": torch.cat([torch.full((EACH, 1), 448.0), sign()[:, 1:] * grid[:, 1:] / 1024], 1),
        "sparse": normal() * (torch.rand(shape, generator=generator) < 0.1),
        "bf16": (normal() * block).bfloat16().float(),
    }
    made["sparse"][0] = 0
    made["not finite"] = normal()
    for i, bad in enumerate([torch.inf, -torch.inf, torch.nan] * 3):
        made["not finite"][i, 3 * i] = bad
    return made


def departures():
    """Blocks where microxcaling is not what the text says."""
    rows = [
        [7.9999995, 5.0, -1.0, 0.1],  # log2 in f32 says 3
        [-15.999999, 0.3, 0.0, 1.0],
        [4.0, 0.24999999, -0.24999999, 1.0],  # below half of e2m1's smallest element; 0.5 is added in f32
        [256.0, 0.00097656244, -0.00097656244, 1.0],  # the same of e4m3's: 2^-10
        [3.0, -0.0, 0.0, -1.0],  # the sign of zero
    ]
    return torch.tensor([row + [0.0] * 28 for row in rows])


def microxcaling(tree):
    sys.path.insert(0, str(tree))
    from mx.mx_ops import _quantize_mx

    def quantize(values, element):
        return _quantize_mx(values.clone(), 8, element, axes=[-1], block_size=32, round="even")

    elements = {"mxfp8": "fp8_e4m3", "mxfp8-e5m2": "fp8_e5m2", "mxfp4": "fp4_e2m1"}
    return lambda values: {name: quantize(values, element) for name, element in elements.items()}


def codes(packed):
    return torch.stack([packed & 15, packed >> 4], -1).flatten(-2).long()


def torchao(tree):
    sys.path.insert(0, str(tree))
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx
    from torchao.prototype.mx_formats.nvfp4_tensor import nvfp4_quantize

    def mx(values):
        made = {}
        for name, element in (("mxfp8", torch.float8_e4m3fn), ("mxfp8-e5m2", torch.float8_e5m2)):
            scale, data = to_mx(values, element, 32, ScaleCalculationMode.FLOOR)
            made[name] = data.float() * scale.float().reshape(-1, 1)
        scale, data = to_mx(values, torch.float4_e2m1fn_x2, 32, ScaleCalculationMode.FLOOR)
        return made | {"mxfp4": E2M1[codes(data)] * scale.float().reshape(-1, 1)}

    def nv(row, scale):
        scales, data = nvfp4_quantize(row.reshape(1, -1), 16, scale)
        return E2M1[codes(data)].reshape(-1, 16) * scales.float().reshape(-1, 1), scales.float().reshape(-1)

    return mx, nv


def specials():
    """Blocks that begin with a special value, followed by smaller ones."""
    first = [0.0, -0.0, 2.0**-149, 1.5 * 2.0**-127, 3.4028234663852886e38, torch.inf, -torch.inf, torch.nan]
    for exponent in (-127, -126, -120, 0, 127):
        for factor in (1.0, 1.5, 1.75, 1.875, 1.9375):
            x = torch.tensor(factor * 2.0**exponent)
            first += [x.item(), torch.nextafter(x, torch.tensor(0.0)).item(), torch.nextafter(x, torch.tensor(torch.inf)).item()]
    first = torch.tensor(first)
    first = first[~((first.abs() == torch.inf) & (torch.arange(len(first)) > 7))]
    rest = 0.9 * torch.exp2(-torch.arange(1.0, 32)) * torch.where(torch.arange(31) % 2 == 0, -1.0, 1.0)
    return torch.cat([first[:, None], torch.where(first.isfinite(), first, 1.0)[:, None] * rest], 1)


def scaling_modes(tree):
    """torchao's to_mx under each of its modes: FORMAT to (e8m0 codes, values of the elements)."""
    sys.path.insert(0, str(tree))
    from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2
    from torchao.prototype.mx_formats.kernels import f6_e2m3_unpacked_to_f32, f6_e3m2_unpacked_to_f32
    from torchao.prototype.mx_formats.mx_tensor import ScaleCalculationMode, to_mx

    formats = {
        "mxfp8": (torch.float8_e4m3fn, lambda data: data.float()),
        "mxfp8-e5m2": (torch.float8_e5m2, lambda data: data.float()),
        "mxfp6-e2m3": (DTYPE_FP6_E2M3, f6_e2m3_unpacked_to_f32),
        "mxfp6-e3m2": (DTYPE_FP6_E3M2, f6_e3m2_unpacked_to_f32),
        "mxfp4": (torch.float4_e2m1fn_x2, lambda data: E2M1[codes(data)].reshape(-1, 32)),
    }
    for mode in ScaleCalculationMode:
        for name, (element, values_of) in formats.items():
            yield f"{mode.value}.{name}", lambda values: (
                lambda scale, data: (scale.view(torch.uint8).reshape(-1), values_of(data).bfloat16())
            )(*to_mx(values, element, 32, mode))


def transformer_engine(tree):
    """The reference quantizer of its recipes: the methods alone, as the rest of the file needs the built package."""
    file = pathlib.Path(tree) / "transformer_engine/pytorch/custom_recipes/reference_nvfp4.py"
    needed = ("cast_to_fp4x2", "_quantize_blockwise_reference", "get_wgrad_sign_vector", "_build_hadamard_matrix")
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef) and node.name in needed]
    for node in found:
        node.decorator_list = []
    space = {"torch": torch, "Tuple": tuple}
    exec(compile(ast.Module(found, []), str(file), "exec"), space)

    def quantize(matrix, height=1):
        data, scales = space["_quantize_blockwise_reference"](
            None, matrix, matrix.abs().max(), 16, height, pow_2_scales=False, eps=0.0)
        return (E2M1[codes(data)].reshape(-1, 16) * scales.float().reshape(-1, 1)).reshape(matrix.shape)

    def transform(matrix):
        return (matrix.reshape(-1, 16) @ (space["_build_hadamard_matrix"](16, matrix.device, matrix.dtype) * 0.25)).reshape(matrix.shape)

    return quantize, transform, space["get_wgrad_sign_vector"]


def expect_equal(what, a, b, rows=slice(None)):
    same = torch.isclose(a[rows], b[rows], rtol=0, atol=0, equal_nan=True)
    assert same.all(), f"{what}: two implementations differ, take another seed\n{(~same).nonzero()}"


def main():
    options = parser(__doc__, ["mx", "text", "nv", "scale", "element", "recipe"])
    options.add_argument("trees", nargs=3, type=pathlib.Path)
    options.add_argument("file", nargs="?", type=pathlib.Path, default=GOLDEN / "blocks.safetensors")
    args = options.parse_args()
    trees = args.trees
    ours, (mx, nv), (engine, transform, signs) = microxcaling(trees[0]), torchao(trees[1]), transformer_engine(trees[2])
    made = kinds(torch.Generator().manual_seed(SEED))

    values = torch.cat(list(made.values()))
    tensors = {"mx.values": values} | {f"mx.{name}": t for name, t in ours(values).items()}
    for name, t in mx(values).items():
        expect_equal(name, tensors[f"mx.{name}"], t)

    values = departures()
    tensors |= {"text.values": values} | {f"text.{name}": t for name, t in mx(values).items()}
    differ = torch.zeros(len(values), dtype=torch.bool)
    for name, t in ours(values).items():
        differ |= (t.view(torch.int32) != tensors[f"text.{name}"].view(torch.int32)).any(1)
    assert differ.all(), f"microxcaling is as the text says in {(~differ).nonzero()}"

    rows = torch.stack([made[name].flatten() for name in ("normal", "wide", "narrow", "saturating", "sparse", "bf16")])
    tensors |= {"nv.values": rows, "nv.scale": rows.abs().amax(1) / 2688, "nv.nvfp4": torch.stack([engine(row.reshape(1, -1)).reshape(-1, 16) for row in rows])}
    for row, scale, want in zip(rows, tensors["nv.scale"], tensors["nv.nvfp4"]):
        got, scales = nv(row, scale)
        expect_equal("nvfp4", got, want, scales > 2.0**-6)
    tensors["nv.nvfp4"] = tensors["nv.nvfp4"].reshape(len(rows), -1)
    values = torch.cat([specials()] + [blocks[:2] for blocks in made.values()])
    tensors["scale.values"] = values
    for name, quantize in scaling_modes(trees[1]):
        tensors[f"scale.{name}"], tensors[f"element.{name}"] = quantize(values)

    generator = torch.Generator().manual_seed(SEED + 1)
    values = (torch.randn((64, 48), generator=generator) * power(-6, 6, (64, 48), generator)).bfloat16().float()
    rotated = transform(values.bfloat16().t().contiguous()).float().t()  # in bf16, as it transforms activations
    tensors |= {
        "recipe.values": values, "recipe.square": engine(values, 16), "recipe.hadamard": rotated,
        "recipe.rotated": engine(rotated.t().contiguous()).t(), "recipe.signs": signs(),
        "recipe.scales": torch.stack([values.abs().max(), rotated.abs().max()]) / 2688,
    }
    save_case({name: t.contiguous() for name, t in tensors.items()}, args.file, args.only)


if __name__ == "__main__":
    main()
