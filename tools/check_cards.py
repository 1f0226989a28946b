#!/usr/bin/env python3
"""Compares the sums of cards (core/numeric/card_sum.h) with MMA-Sim on random vectors that no test has.

    check_cards.py MMA_SIM [--tiles N] [--seed S] [--jobs J] [--only TEXT]

Each instruction has 128 · N results, of eight kinds of values (tools/golden_cards.py). MMA-Sim computes about 1000 in a second.
If the package mmaemu is installed, its sums of 8-bit factors on Ada and Hopper are compared with MMA-Sim's as well. Needs a build:
./dev build --target test_numeric
"""
import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
CARDS = ("v100", "a100", "ada", "h100", "b200", "rtx-blackwell", "mi250", "mi300")
PRESET = {"ada": "ada", "h100": "hopper"}


def against_mmaemu(file):
    """Prints the number of sums on which MMA-Sim and mmaemu differ. NaN is equal to NaN."""
    try:
        from mmaemu.model.chain import dot
    except ImportError:
        return print("mmaemu is not installed: no second source")
    from safetensors.torch import load_file

    tensors = load_file(file)
    for name in [n[:-2] for n in tensors if n.endswith(".a")]:
        card, formats, accumulator, k = name.split(".")
        if card not in PRESET or accumulator != "f32" or "e" not in formats:
            continue
        a, b, c, d = (tensors[f"{name}.{part}"] for part in "abcd")
        shape = (*c.shape, a.shape[-1])
        got = dot(a.float()[:, :, None].expand(shape).to(a.dtype).contiguous(),
                  b.float()[:, None].expand(shape).to(b.dtype).contiguous(), c.contiguous(), preset=PRESET[card])
        differ = ((got != d) & ~(got.isnan() & d.isnan())).sum().item()
        print(f"{name}: mmaemu differs on {differ} of {d.numel()}")


def check(card, args):
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "vectors.safetensors"
        subprocess.run([sys.executable, ROOT / "tools/golden_cards.py", args.mma_sim, file, "--tiles", str(args.tiles), "--seed",
                        str(args.seed), "--only", args.only or f"{card}."], check=True, stderr=subprocess.DEVNULL)
        run = subprocess.run([ROOT / "build/tests/test_numeric", "--gtest_filter=SlowCards.*"], text=True,
                             capture_output=True, env=os.environ | {"MANTISSA_CARD_VECTORS": str(file)}, check=False)
        print(f"{card}: {'equal' if run.returncode == 0 and 'SKIPPED' not in run.stdout else run.stdout}", flush=True)
        against_mmaemu(file)
        return run.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mma_sim", type=pathlib.Path)
    parser.add_argument("--tiles", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="only instructions whose names contain this")
    args = parser.parse_args()
    cards = [args.only] if args.only else CARDS
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        sys.exit(max(pool.map(lambda card: check(card, args), cards)))


if __name__ == "__main__":
    main()
