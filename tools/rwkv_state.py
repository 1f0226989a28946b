#!/usr/bin/env python3
"""Measures how the states of an RWKV-7 model drift from those in f64, by the format of the state: docs/rwkv.md. Needs only
Python's standard library.

    rwkv_state.py MODEL TEXT [--lengths 1000,10000,100000] [--mantissa FILE]

For each number of bytes of TEXT and each policy it prints the relative distance of the states after the text: in each layer the
root mean square of the differences over that of the states in f64, then the root mean square of the layers, and the worst one.
"""
import argparse
import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

POLICIES = {"f32": "32-true", "bf16": "32-true state=bf16", "f16": "32-true state=f16",
            "bf16, stochastic": '32-true; {match = "*", op = "recurrence", rounding = "stochastic", state = "bf16"}',
            "f16, stochastic": '32-true; {match = "*", op = "recurrence", rounding = "stochastic", state = "f16"}',
            "f32, operands bf16": "bf16-mixed", "bf16, operands bf16": "bf16-mixed state=bf16"}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("text", type=pathlib.Path)
    p.add_argument("--lengths", default="1000,10000,100000", help="bytes of the text")
    p.add_argument("--mantissa", default=str(pathlib.Path(__file__).resolve().parent.parent / "build/mantissa"))
    return p.parse_args()


def widened(code, data):
    """The values of a tensor as floats."""
    if code == "F64":
        return array.array("d", data)
    if code == "F32":
        return array.array("f", data)
    if code == "F16":
        return [x for (x,) in struct.iter_unpack("<e", data)]
    return array.array("f", b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))  # BF16


def states(path):
    """The states of the recurrences of a file of --save-state, by name."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    begin = 8 + size
    return {name: widened(t["dtype"], raw[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items() if name.endswith(".attn.state")}


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b))


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        prompt, out = pathlib.Path(folder) / "text", pathlib.Path(folder) / "states"

        def states_under(policy):
            done = subprocess.run([args.mantissa, "generate", args.model, "--prompt-file", str(prompt), "--max-new-tokens", "1",
                                   "--precision", policy, "--save-state", str(out), "--quiet"], stdout=subprocess.DEVNULL)
            if done.returncode:
                sys.exit(f"rwkv_state: mantissa ended with code {done.returncode}")
            return states(out)

        print(f"{'state':<22}" + "".join(f"{length + ' bytes':>24}" for length in args.lengths.split(",")))
        rows = {name: [] for name in POLICIES}
        for length in args.lengths.split(","):
            text = args.text.read_bytes()[:int(length)]
            if len(text) < int(length):
                sys.exit(f"rwkv_state: {args.text} has {len(text)} bytes, not {length}. Fix: choose smaller --lengths")
            prompt.write_bytes(text)
            exact = states_under("64-true")
            for name, policy in POLICIES.items():
                layers = [distance(values, exact[state]) for state, values in states_under(policy).items()]
                mean = math.sqrt(sum(d * d for d in layers) / len(layers))
                rows[name].append(f"{mean:.2e} (worst {max(layers):.1e})")
        for name, cells in rows.items():
            print(f"{name:<22}" + "".join(f"{cell:>24}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
