#!/usr/bin/env python3
"""Writes random models as GGUF files with Mantissa, and compares what llama.cpp computes from them.

    check_gguf.py --mantissa build/mantissa [--only olmo2] [--work DIR]

llama.cpp is that of the pip package xllamacpp.
The checks of each model, with weights in f32:

  logits    The log-probabilities of every token after a prompt must be within 2e-5 of those that transformers computes in f32.
            llama.cpp and Mantissa round differently.
  back      The GGUF file itself must have the log-probabilities of the model directory in Mantissa, bit for bit.
  names     The tensors must be those that the package gguf lists for the architecture.
  adapter   The model with a LoRA adapter of all its linear layers, which Mantissa wrote as GGUF, must have the log-probabilities of
            peft within the same bound, and others than without it.

The exit status is 1 if anything differs.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import gguf
import peft
import torch
import transformers
import xllamacpp
from safetensors.torch import load_file, save_file

from families import make

VOCABULARY, LENGTH = 96, 23


def cases():
    """Yields (label, config class, fields)."""
    from transformers import GraniteConfig, LlamaConfig, Olmo2Config, SmolLM3Config, StableLmConfig

    def rope(kind, **more):
        return dict(rope_parameters=dict(rope_theta=10000.0, rope_type=kind, **more))

    yield "llama", LlamaConfig, {}
    yield "olmo2", Olmo2Config, {}
    yield "olmo2-yarn", Olmo2Config, rope("yarn", factor=4.0, original_max_position_embeddings=16)
    yield "smollm3", SmolLM3Config, dict(num_hidden_layers=5)
    yield "smollm3-untied", SmolLM3Config, dict(num_hidden_layers=4, tie_word_embeddings=False, head_dim=10)
    yield "stablelm", StableLmConfig, dict(use_qkv_bias=True)
    yield "stablelm-parallel", StableLmConfig, dict(use_parallel_residual=True, partial_rotary_factor=0.75, hidden_size=80,
                                                    num_attention_heads=10)
    yield "granite", GraniteConfig, dict(embedding_multiplier=12.0, attention_multiplier=0.125, residual_multiplier=0.22,
                                         logits_scaling=8.0)
    yield "granite-tied-biases", GraniteConfig, dict(
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=10, embedding_multiplier=3.7, attention_multiplier=0.3,
        residual_multiplier=1.3, logits_scaling=6.0)


def tokenizer():
    """Returns a byte-level vocabulary without merges: the server needs one."""
    words = [chr(code) for code in (*range(33, 127), *range(0x100, 0x144))][:VOCABULARY]
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {word: i for i, word in enumerate(words)}, "merges": []}}


def run(args, *words):
    done = subprocess.run([args.mantissa, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{words[0]}: {done.stderr.strip()}")
    return done.stdout


def of_llama_cpp(path, ids, adapter=None):
    """Returns the log-probabilities of all tokens after the prompt `ids`."""
    p = xllamacpp.CommonParams()
    p.model.path, p.n_ctx, p.n_parallel, p.warmup, p.verbosity = str(path), 64, 1, False, -1
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if adapter is not None:
        lora = xllamacpp.CommonAdapterLoraInfo()
        lora.path, lora.scale = str(adapter), 1.0
        p.lora_adapters = [lora]
    request = dict(prompt=ids, n_predict=1, n_probs=VOCABULARY, temperature=1.0, samplers=[], cache_prompt=False)
    answer = xllamacpp.Server(p).handle_completions(request)
    after = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    found = {one["id"]: one["logprob"] for one in after}
    return torch.tensor([found[i] for i in range(VOCABULARY)])


def check(label, config_class, fields, args, work):
    directory, file = work / label, work / f"{label}.gguf"
    model = make(config_class, dict(vocab_size=VOCABULARY) | fields)
    model.save_pretrained(directory)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer()))
    ids = torch.randint(0, VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = torch.log_softmax(model(input_ids=ids).logits[0, -1].double(), -1)
    run(args, "convert", directory, file, "--overwrite")
    off = (of_llama_cpp(file, ids[0].tolist()).double() - wanted).abs().max().item()
    print(f"  llama.cpp: {off:.1e}")
    faults = [] if off <= 2e-5 else [f"llama.cpp differs by {off:.2e}"]
    save_file({"input_ids": ids.int()}, work / "ids.safetensors")
    traces = []
    for source in (directory, file):
        run(args, "trace", source, "--tokens", work / "ids.safetensors", "--out", work / "trace.safetensors", "--overwrite",
            "--precision", "32-true")
        traces.append(load_file(work / "trace.safetensors")["logits"])
    if not torch.equal(*traces):
        faults.append("the GGUF file has other logits than the directory")
    return faults + check_adapter(model, directory, file, ids, wanted, args) + check_names(file)


def check_adapter(model, directory, file, ids, plain, args):
    """`plain` are the log-probabilities of the model alone."""
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=6, target_modules="all-linear"))
    generator = torch.Generator().manual_seed(5)
    for name, parameter in adapted.named_parameters():
        if ".lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.1
    folder, lora = directory.with_name(directory.name + "-adapter"), file.with_suffix(".lora.gguf")
    adapted.peft_config["default"].base_model_name_or_path = str(directory)
    adapted.save_pretrained(folder)
    with torch.no_grad():
        wanted = torch.log_softmax(adapted(input_ids=ids).logits[0, -1].double(), -1)
    run(args, "convert", folder, lora, "--overwrite")
    off = (of_llama_cpp(file, ids[0].tolist(), lora).double() - wanted).abs().max().item()
    change = (wanted - plain).abs().max().item()
    print(f"  with an adapter, which changes {change:.1e}: {off:.1e}")
    faults = [] if off <= 2e-5 else [f"llama.cpp with the adapter differs from peft by {off:.2e}"]
    return faults + ([] if change > 1e-2 else ["the adapter changes nothing that could be seen"])


def check_names(file):
    reader = gguf.GGUFReader(file)
    name = reader.get_field("general.architecture").contents()
    arch = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}[name]
    known = {gguf.TENSOR_NAMES[tensor] for tensor in gguf.MODEL_TENSORS[arch]}
    names = {re.sub(r"^blk\.\d+\.", "blk.{bid}.", t.name.rsplit(".", 1)[0]) for t in reader.tensors}
    return [f"the package gguf has no tensor {one} in {name}" for one in sorted(names - known)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default="build/mantissa")
    parser.add_argument("--only", default="", help="cases whose label contains this")
    parser.add_argument("--work", type=pathlib.Path, help="folder for models and files (default: a temporary one)")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        for label, config_class, fields in cases():
            if args.only not in label:
                continue
            print(label, flush=True)
            faults = check(label, config_class, fields, args, args.work or pathlib.Path(temporary))
            for fault in faults:
                print("  FAULT", fault)
            bad += bool(faults)
    print(f"{bad} cases differ")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
