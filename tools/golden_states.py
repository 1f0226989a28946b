#!/usr/bin/env python3
"""Makes tests/golden/states.safetensors: states of optimizers in blocks, as bitsandbytes and torchao store them.

    golden_states.py [FILE] [--only map|codes|run|e4m3]

    map.signed            [256] f32, map.positive: create_dynamic_map
    codes.values          [4270] f32: blocks of many magnitudes, zeros, midpoints; the last block is shorter than 256
    codes.signed          [4270] u8, codes.positive (of the magnitudes), codes.scales [17] f32
    codes.signed_values   [4270] f32, codes.positive_values: dequantize_blockwise
    e4m3.codes            [4270] u8 (bits of e4m3), e4m3.scales [17]: torchao's quantize_fp8, without its least magnitude 1e-12
    run.STEP.weight       [70, 61] f32 after steps 1 and 12 of bitsandbytes.optim.AdamW8bit on a CPU
    run.STEP.first        [70, 61] u8 codes, run.STEP.first_scales [17]; the same for second

bitsandbytes' CPU library finds codes in a table that is coarser than the data type, so some are not the nearest. The codes
here are the nearest ones, by the formula of bitsandbytes' own generic code.
"""
import bitsandbytes as bnb
import bitsandbytes.backends.cpu.ops as cpu
import bitsandbytes.functional as F
import torch

from golden import arguments, save_case

SEED, COUNT, BLOCK, SHAPE, STEPS, KEPT = 20261127, 4270, 256, (70, 61), 12, (1, 12)
SIGNED, POSITIVE = F.create_dynamic_map(signed=True), F.create_dynamic_map(signed=False)


def nearest(x, numbers):
    """Codes and scales of x, by the generic code of bitsandbytes."""
    middles = (numbers[:-1] + numbers[1:]) / 2
    codes, scales = [], []
    for block in x.reshape(-1).split(BLOCK):
        most = block.abs().max()
        y = torch.clamp(block * (1.0 / most.clamp(min=1e-38)), -1, 1)
        codes.append(torch.bucketize(y, middles, out_int32=True).to(torch.uint8))
        scales.append(most)
    return torch.cat(codes).reshape(x.shape), torch.stack(scales)


def checked(x, numbers):
    codes, scales = nearest(x, numbers)
    theirs, absmax = torch.ops.bitsandbytes.quantize_blockwise(x, numbers, BLOCK)
    assert torch.equal(absmax, scales)
    print(f"{(theirs != codes).float().mean():.2%} of the library's codes are not the nearest")
    return codes, scales, torch.ops.bitsandbytes.dequantize_blockwise(codes, scales, numbers, BLOCK, torch.float32)


def make_values():
    g = torch.Generator().manual_seed(SEED)
    x = torch.randn(COUNT, generator=g) * torch.exp2(torch.randint(-30, 3, (COUNT,), generator=g).float())
    x[:256] = torch.randn(256, generator=g)
    x[256:512] = 0
    x[512:768] = SIGNED
    x[768:1023], x[1023] = (SIGNED[:-1] + SIGNED[1:]) / 2, 1
    x[1024:1280] *= 1e-33
    return x


def start():
    return torch.tensor([((i * 613) % 257 - 128) / 256 for i in range(COUNT)]).reshape(SHAPE)


def gradient(t):
    return torch.tensor([((i * 7919 + t * 104729) % 2003 - 1000.5) / 4096 for i in range(COUNT)]).reshape(SHAPE)


def run(tensors):
    def store(values, numbers, scales, codes, blocksize):
        found, most = nearest(values, numbers)
        codes.copy_(found), scales.copy_(most)

    cpu._quant_blockwise_fp32_direct = store
    w = torch.nn.Parameter(start())
    optimizer = bnb.optim.AdamW8bit([w], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for t in range(1, STEPS + 1):
        w.grad = gradient(t)
        optimizer.step()
        state = optimizer.state[w]
        if t in KEPT:
            tensors |= {
                f"run.{t}.weight": w.detach().clone(),
                f"run.{t}.first": state["state1"].clone(),
                f"run.{t}.first_scales": state["absmax1"].clone(),
                f"run.{t}.second": state["state2"].clone(),
                f"run.{t}.second_scales": state["absmax2"].clone(),
            }
    assert state["state1"].dtype == torch.uint8 and torch.equal(state["qmap1"], SIGNED) and torch.equal(state["qmap2"], POSITIVE)


def main():
    path, only = arguments(__doc__, "states.safetensors", ["map", "codes", "run", "e4m3"])
    x = make_values()
    signed, scales, signed_values = checked(x, SIGNED)
    positive, _, positive_values = checked(x.abs(), POSITIVE)
    fp8 = torch.stack([b.abs().max() / 448 for b in x.split(BLOCK)])
    spread = fp8.repeat_interleave(BLOCK)[:COUNT]
    eight = torch.where(spread == 0, torch.zeros(()), x / spread).clamp(-448, 448).to(torch.float8_e4m3fn)
    tensors = {
        "map.signed": SIGNED,
        "map.positive": POSITIVE,
        "codes.values": x,
        "codes.signed": signed,
        "codes.positive": positive,
        "codes.scales": scales,
        "codes.signed_values": signed_values,
        "codes.positive_values": positive_values,
        "e4m3.codes": eight.view(torch.uint8),
        "e4m3.scales": fp8,
    }
    run(tensors)
    save_case(tensors, path, only)


if __name__ == "__main__":
    main()
