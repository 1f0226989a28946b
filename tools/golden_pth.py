#!/usr/bin/env python3
"""Writes checkpoints of PyTorch, each beside a safetensors file with the same tensors.

Needs torch and safetensors. Usage: tools/golden_pth.py tests/files/io/pth fuzz/corpus/pth [--only CASE]
With --only, only the files of that case are written: dtypes, views, nested, old, negative, conjugate or command.
"""

import collections
import io
import pathlib
import pickle
import zipfile

import torch
from safetensors.torch import save_file

from golden import parser

DTYPES = (
    "float64 float32 bfloat16 float16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 bool uint64 uint32 uint16 "
    "complex64 float8_e8m0fnu"
).split()


def random(dtype: str, shape: list[int]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(dtype))
    kind = getattr(torch, dtype)
    count = torch.Size(shape).numel() * kind.itemsize
    raw = torch.randint(0, 256, (count,), generator=generator, dtype=torch.uint8)
    return (raw & 1 if dtype == "bool" else raw).view(kind).reshape(shape)


def views() -> collections.OrderedDict:
    base = random("float32", [4, 3, 2])
    tensors = collections.OrderedDict(base=base, same=base, permuted=base.permute(2, 0, 1), row=base[1])
    tensors["column"] = base[:, 1, 0]
    tensors["expanded"] = base[0:1].expand(3, 3, 2)
    tensors["scalar"] = base[3, 2, 1]
    tensors["empty"] = base[:, 0:0]
    tensors["parameter"] = torch.nn.Parameter(base[2].clone())
    tensors._metadata = {"": {"version": 1}}
    return tensors


def contiguous(tensors: dict) -> dict:
    return {name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}


def archive(pickled: bytes, entries: dict[str, bytes] = {}) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        out.writestr(zipfile.ZipInfo("archive/data.pkl"), pickled)
        for name, contents in entries.items():
            out.writestr(zipfile.ZipInfo(name), contents)
    return file.getvalue()


class Command:
    def __reduce__(self):
        import os

        return os.system, ("true",)


def main() -> None:
    options = parser(__doc__, ["dtypes", "views", "nested", "old", "negative", "conjugate", "command"])
    options.add_argument("tests", type=pathlib.Path)
    options.add_argument("corpus", type=pathlib.Path)
    args = options.parse_args()
    tests, corpus = args.tests, args.corpus

    def wanted(case: str) -> bool:
        return args.only in (None, case)

    for folder in (tests, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    dtypes = {name: random(name, [2, 3]) for name in DTYPES}
    nested = {"model": {"layers": [views(), {"bias": dtypes["float16"]}], "bytes": b"ab", "number": 0.5},
              "optimizer": {"state": {0: dtypes["float32"]}}, "epoch": 3, "size": torch.Size([1, 2]), "set": {1, 2},
              "device": torch.device("cpu"), "dtype": torch.float16, "large": 1 << 80}
    flat = {f"layers.0.{name}": tensor for name, tensor in views().items()}
    flat["layers.1.bias"] = dtypes["float16"]
    files = {"dtypes": (dtypes, dtypes), "views": (views(), views()), "nested": (nested, flat)}
    for name, (saved, expected) in files.items():
        if not wanted(name):
            continue
        for protocol in (2, 5):
            path = tests / f"{name}_{protocol}.pth"
            torch.save(saved, path, pickle_protocol=protocol)
            (corpus / path.name).write_bytes(path.read_bytes())
        save_file(contiguous(expected), tests / f"{name}.safetensors")
    if wanted("old"):
        torch.save(dtypes["float32"], tests / "old.pth", _use_new_zipfile_serialization=False)
    numbers = torch.complex(dtypes["float32"], dtypes["float32"])
    for name, tensor in (("negative", numbers.conj().imag), ("conjugate", numbers.conj())):
        if not wanted(name):
            continue
        torch.save({"layer": {"weight": tensor}}, tests / f"{name}.pth")
        (corpus / f"{name}.pth").write_bytes((tests / f"{name}.pth").read_bytes())
    for protocol in (0, 2, 4) if wanted("command") else ():
        (corpus / f"command_{protocol}.pth").write_bytes(archive(pickle.dumps(Command(), protocol)))
    if wanted("views"):
        whole = (tests / "views_2.pth").read_bytes()
        (corpus / "cut.pth").write_bytes(whole[: len(whole) // 2])


if __name__ == "__main__":
    main()
