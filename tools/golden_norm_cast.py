#!/usr/bin/env python3
"""Makes tests/golden/norm_cast.safetensors: RMSNorm in bf16 as transformers and as Transformer Engine round it.

    golden_norm_cast.py [FILE]

    x [24, 64], gain [64], dy [24, 64]   bf16. The squares of x add up exactly in f32
    before.y                             LlamaRMSNorm of transformers, bf16: rounds x / rms, then its product with the gain
    before.dx, before.dgain              f64: the gradients with these roundings, and none of their own
    after.y                              bf16: the rule of Transformer Engine, one rounding of the product in f32
"""
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from golden import arguments, save_case

SEED, TOKENS, WIDTH, EPS = 20261128, 24, 64, 1e-6


def main():
    path, _ = arguments(__doc__, "norm_cast.safetensors", [])
    g = torch.Generator().manual_seed(SEED)
    x = (torch.randint(-127, 128, (TOKENS, WIDTH), generator=g) / 16).bfloat16()
    gain = (1 + 0.3 * torch.randn(WIDTH, generator=g)).bfloat16()
    dy = torch.randn(TOKENS, WIDTH, generator=g).bfloat16()
    norm = LlamaRMSNorm(WIDTH, EPS).bfloat16()
    norm.weight.data.copy_(gain)
    given = x.clone().requires_grad_()
    y = norm(given)
    y.backward(dy)

    wide = x.float()
    rstd = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    normal = wide * rstd
    rounded = normal.bfloat16()
    assert torch.equal(y, gain * rounded)
    grad, hat, root = (dy * gain).double(), normal.double(), rstd.double()
    dx = root * (grad - hat * (grad * hat).mean(-1, keepdim=True))
    dgain = (dy.double() * rounded.double()).sum(0)
    torch.testing.assert_close(given.grad.double(), dx, rtol=2**-8, atol=2**-12)
    torch.testing.assert_close(norm.weight.grad.double(), dgain, rtol=2**-6, atol=2**-5)
    save_case({
        "x": x,
        "gain": gain,
        "dy": dy,
        "before.y": y.detach(),
        "before.dx": dx,
        "before.dgain": dgain,
        "after.y": (normal * gain.float()).bfloat16(),
    }, path, None)
    print(f"{(y != (normal * gain.float()).bfloat16()).float().mean():.1%} of the results differ between the two")


if __name__ == "__main__":
    main()
