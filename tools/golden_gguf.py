#!/usr/bin/env python3
"""Writes tests/files/gguf/golden_quants.h: blocks of every quantized type of GGUF files, and their values.

The values are those of the pip package gguf, whose f32 arithmetic gives the same bits as ggml-quants.c (all
products are exact). Blocks are random bytes, with scales that are ordinary, the largest of f16, subnormal,
and negative. Usage: tools/golden_gguf.py > tests/files/gguf/golden_quants.h

With a folder, writes small models there instead: tools/golden_gguf.py fuzz/corpus/gguf [--only MODEL]
With --only, only that model is written; llama_q4_1 includes the two damaged files that are made from it.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter, TokenType, quants

from golden import parser

# Name of the enumerator, and the offsets of f16 values in a block.
TYPES = {
    "q4_0": ("Q4_0", [0]),
    "q4_1": ("Q4_1", [0, 2]),
    "q5_0": ("Q5_0", [0]),
    "q5_1": ("Q5_1", [0, 2]),
    "q8_0": ("Q8_0", [0]),
    "q2_k": ("Q2_K", [80, 82]),
    "q3_k": ("Q3_K", [108]),
    "q4_k": ("Q4_K", [0, 2]),
    "q5_k": ("Q5_K", [0, 2]),
    "q6_k": ("Q6_K", [208]),
    "mxfp4": ("MXFP4", []),
}
SCALES = [(0.0123, 0.37), (65504.0, -65504.0), (6e-8, 5.9e-5), (-1.5, 0.0)]


def fnv(values):
    """FNV-1a of 64 bits over the bytes of the values."""
    state = 0xCBF29CE484222325
    for byte in values.tobytes():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def lines(numbers, width):
    items = [f"0x{n:0{width}x}" for n in numbers]
    per_line = 100 // (width + 4)
    return ",\n     ".join(", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line))


def q8_0_rows(rng):
    """Values whose codes and scales are at the edges of Q8_0, and in the first rows of Q4_0."""
    rows = np.zeros((5, 32), np.float32)
    rows[0] = rng.standard_normal(32)
    rows[1] = np.arange(32) - 15.5  # codes with halves
    rows[2] = 1e-45
    rows[4] = rng.standard_normal(32) * 1e6
    rows[4, 0] = 8.3e6  # beyond the range of Q4_0
    return rows


def add_vocabulary(writer, kind, size):
    """A vocabulary of bytes and a few merges."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(4)] + list("abcdefgh") + ["ab", "abc"]
    tokens += [f"t{i}" for i in range(len(tokens), size)]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 4
    types += [TokenType.NORMAL] * (size - len(types))
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if kind == "llama":
        writer.add_token_scores([-float(i) for i in range(size)])
    else:
        writer.add_token_merges(["a b", "ab c"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{{ messages[0].content }}")


def write_model(path, arch, qtype, kind):
    """A model of one layer with a width of 32."""
    rng = np.random.default_rng(3)
    vocabulary, width = 32, 32
    writer = GGUFWriter(path, arch)
    writer.add_context_length(64)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(width)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(8)
    writer.add_value_length(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if arch == "gemma3":
        writer.add_sliding_window(16)
    add_vocabulary(writer, kind, vocabulary)

    def add(name, *shape):
        values = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1 or qtype is None:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quants.quantize(values, qtype), raw_dtype=qtype)

    add("token_embd.weight", vocabulary, width)
    add("output_norm.weight", width)
    if arch == "gpt2":
        add("position_embd.weight", 64, width)
        add("output_norm.bias", width)
        parts = {"attn_norm": (width,), "attn_qkv": (3 * width, width), "attn_output": (width, width),
                 "ffn_norm": (width,), "ffn_up": (width, width), "ffn_down": (width, width)}
        for name, shape in parts.items():
            add(f"blk.0.{name}.weight", *shape)
            add(f"blk.0.{name}.bias", shape[0])
    else:
        parts = {"attn_norm": (width,), "attn_q": (width, width), "attn_k": (16, width), "attn_v": (16, width),
                 "attn_output": (width, width), "ffn_norm": (width,), "ffn_gate": (width, width),
                 "ffn_up": (width, width), "ffn_down": (width, width)}
        if arch == "gemma3":
            parts |= {"attn_q_norm": (8,), "attn_k_norm": (8,), "post_attention_norm": (width,),
                      "post_ffw_norm": (width,)}
        for name, shape in parts.items():
            add(f"blk.0.{name}.weight", *shape)
    if arch == "llama":
        writer.add_tensor("rope_freqs.weight", np.array([1, 1, 1, 8], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


MODELS = {"llama_q4_1": ("llama", GGMLQuantizationType.Q4_1, "gpt2"),
          "llama_spm": ("llama", GGMLQuantizationType.Q8_0, "llama"),
          "gemma3": ("gemma3", GGMLQuantizationType.Q5_0, "llama"),
          "gpt2": ("gpt2", GGMLQuantizationType.Q5_1, "gpt2")}


def write_corpus(folder, only):
    for name, arguments in MODELS.items():
        if only in (None, name):
            write_model(folder / f"{name}.gguf", *arguments)
    if only not in (None, "llama_q4_1"):
        return
    whole = (folder / "llama_q4_1.gguf").read_bytes()
    (folder / "cut.gguf").write_bytes(whole[:1000])
    (folder / "huge_count.gguf").write_bytes(whole[:8] + b"\0" * 7 + b"\x80" + whole[16:64])


def main():
    options = parser(__doc__, MODELS)
    options.add_argument("folder", nargs="?", type=pathlib.Path)
    args = options.parse_args()
    if args.folder:
        return write_corpus(args.folder, args.only)
    rng = np.random.default_rng(11)
    print("// Written by tools/golden_gguf.py.")
    print("#pragma once\n\n#include <array>\n#include <cstdint>\n#include <vector>\n")
    print('#include "mantissa/files/gguf/tensor_type.h"\n')
    print("namespace mantissa::gguf {\n")
    print("/// Blocks of a type, the bits of their first 8 values each, and FNV-1a of the bits of all values.")
    print("struct GoldenBlocks {\n  TensorType type;\n  std::vector<std::uint8_t> stored;")
    print("  std::vector<std::uint32_t> first;\n  std::uint64_t hash;\n};\n")
    print("inline const std::vector<GoldenBlocks> kGoldenBlocks = {")
    for name, (python_name, offsets) in TYPES.items():
        qtype = GGMLQuantizationType[python_name]
        block, size = GGML_QUANT_SIZES[qtype]
        stored = rng.integers(0, 256, (len(SCALES), size), dtype=np.uint8)
        for i, scales in enumerate(SCALES):
            for offset, scale in zip(offsets, scales):
                stored[i, offset : offset + 2] = np.array([scale], np.float16).view(np.uint8)
        values = quants.dequantize(stored, qtype).astype(np.float32)
        first = values[:, :8].ravel().view(np.uint32)
        print(f"    {{TensorType::{name},\n     {{{lines(stored.ravel(), 2)}}},")
        print(f"     {{{lines(first, 8)}}},\n     0x{fnv(values):016x}}},")
    print("};\n")
    rows = q8_0_rows(rng)
    print("/// Values, their codes as Q8_0, and those of the first 4 blocks as Q4_0.")
    print(f"inline const std::vector<std::uint32_t> kGoldenValues = {{\n     {lines(rows.ravel().view(np.uint32), 8)}}};\n")
    for name, qtype, count in (("kGoldenCodes", GGMLQuantizationType.Q8_0, 5), ("kGoldenCodesQ4", GGMLQuantizationType.Q4_0, 4)):
        codes = quants.quantize(rows[:count], qtype)
        print(f"inline const std::vector<std::uint8_t> {name} = {{\n     {lines(codes.ravel(), 2)}}};\n")
    print("}  // namespace mantissa::gguf")


if __name__ == "__main__":
    main()
