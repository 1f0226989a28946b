#!/usr/bin/env python3
"""Random models of every family, traced by Mantissa and by transformers: logits, log-probabilities, loss and all gradients.

    check_families.py --mantissa build/mantissa [--only qwen2] [--work DIR] [--keep]

The reference runs transformers' own model code in f64: what that code casts to float32 stays f64. `64-true` must agree
to 1e-9 of each tensor's largest value; `32-true` must be within 8 times the distance of transformers in f32 (at least
half an f32 ulp of the largest value). Then the generation of Mantissa must give the log-probabilities of its trace bit
for bit, and what `mantissa convert` writes must load in transformers without a warning and give the same logits.
The exit status is 1 where anything differs.
"""
import argparse
import json
import logging
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
import transformers
from safetensors.torch import load_file, save_file

VOCABULARY, LENGTH, ROWS = 97, 41, 2
DECODER = dict(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=6,
               num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.15)


def cases():
    """(label, config class, fields)."""
    from transformers import (GPT2Config, Gemma2Config, Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen2Config,
                              Qwen3Config)

    def rope(kind, **more):
        return dict(rope_parameters=dict(rope_theta=10000.0, rope_type=kind, **more))

    yield "llama", LlamaConfig, {}
    yield "llama-tied-biases", LlamaConfig, dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=10)
    yield "llama-linear", LlamaConfig, rope("linear", factor=4.0)
    yield "llama-dynamic", LlamaConfig, rope("dynamic", factor=4.0) | dict(max_position_embeddings=16)
    yield "llama-dynamic-short", LlamaConfig, rope("dynamic", factor=4.0)
    yield "llama-llama3", LlamaConfig, rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                            original_max_position_embeddings=16)
    yield "llama-yarn", LlamaConfig, rope("yarn", factor=4.0, original_max_position_embeddings=16)
    yield "llama-yarn-mscale", LlamaConfig, rope("yarn", factor=8.0, original_max_position_embeddings=8, mscale=0.7,
                                                 mscale_all_dim=0.9, beta_fast=16.0, beta_slow=2.0)
    yield "mistral", MistralConfig, dict(sliding_window=7)
    yield "mistral-whole", MistralConfig, dict(sliding_window=None, head_dim=16)
    yield "qwen2", Qwen2Config, dict(tie_word_embeddings=True)
    yield "qwen2-window", Qwen2Config, dict(use_sliding_window=True, sliding_window=9, max_window_layers=1)
    yield "qwen2-types", Qwen2Config, dict(use_sliding_window=True, sliding_window=5, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"])
    yield "qwen3", Qwen3Config, dict(head_dim=12)
    yield "qwen3-bias-window", Qwen3Config, dict(head_dim=16, attention_bias=True, use_sliding_window=True,
                                                 sliding_window=11, max_window_layers=2)
    yield "gpt2", GPT2Config, dict(n_embd=48, n_layer=3, n_head=4, n_positions=64)
    yield "gpt2-untied", GPT2Config, dict(n_embd=40, n_layer=2, n_head=5, n_positions=LENGTH, n_inner=50,
                                          tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True)
    yield "gemma2", Gemma2Config, dict(head_dim=8, sliding_window=6, query_pre_attn_scalar=11)
    yield "gemma2-caps-off", Gemma2Config, dict(head_dim=16, sliding_window=6, attn_logit_softcapping=None,
                                                final_logit_softcapping=None, tie_word_embeddings=False)
    yield "gemma2-tight", Gemma2Config, dict(head_dim=8, sliding_window=5, attn_logit_softcapping=0.5,
                                             final_logit_softcapping=1.5)
    yield "gemma3", Gemma3TextConfig, dict(head_dim=8, sliding_window=6, num_hidden_layers=7, query_pre_attn_scalar=8)
    yield "gemma3-linear", Gemma3TextConfig, dict(
        head_dim=8, sliding_window=6, layer_types=["sliding_attention", "full_attention", "full_attention"],
        rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                             sliding_attention=dict(rope_type="default", rope_theta=5000.0)))


def make(config_class, fields):
    base = dict(vocab_size=VOCABULARY, initializer_range=0.15) if config_class.model_type == "gpt2" else DECODER
    config = config_class(**(base | fields), attn_implementation="eager")
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():  # norms and biases are 1 and 0 by default: a swapped pair would not show
        for name, p in model.named_parameters():
            p.copy_(p + 0.2 * torch.randn_like(p) if p.dim() == 1 else 0.15 * torch.randn_like(p))
    return model


class AllF64:
    """transformers' model code with every cast to float32 made a cast to float64."""

    def __enter__(self):
        self.f32, self.float = torch.float32, torch.Tensor.float
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
        torch.set_default_dtype(torch.float64)
        return self

    def __exit__(self, *_):
        torch.set_default_dtype(self.f32)
        torch.float32 = torch.float = self.f32
        torch.Tensor.float = self.float


def run(model, ids, tied_name):
    model.zero_grad(set_to_none=True)
    logits = model(input_ids=ids).logits
    log_probs = torch.log_softmax(logits.to(torch.float64 if logits.dtype == torch.float64 else logits.dtype), -1)[:, :-1]
    picked = log_probs.gather(-1, ids[:, 1:, None])[..., 0]
    loss = -picked.mean()
    loss.backward()
    out = {"logits": logits.detach().clone(), "log_probs": picked.detach().clone(), "loss": loss.detach().reshape(1)}
    for name, p in model.named_parameters():
        out["grad." + name] = p.grad.clone()
    return out


def distance(a, b):
    return (a.double() - b.double()).abs().max().item()


def check(label, config_class, fields, args, work):
    model = make(config_class, fields)
    directory = work / label
    model.save_pretrained(directory, max_shard_size="20KB" if "yarn" in label or "untied" in label else "5GB")
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(3))
    save_file({"input_ids": ids.int()}, directory / "ids.safetensors")
    f32 = run(model, ids, None)
    with AllF64():
        reference_model = make(config_class, fields)
        reference_model.load_state_dict(model.state_dict())
        for module in reference_model.modules():  # tables that were made in f32
            if hasattr(module, "compute_default_rope_parameters") or "RotaryEmbedding" in type(module).__name__:
                module.__init__(reference_model.config)
        reference = run(reference_model.double(), ids, None)
    faults = []
    for policy in ("64-true", "32-true"):
        out = directory / f"{policy}.safetensors"
        done = subprocess.run([args.mantissa, "trace", directory, "--tokens", directory / "ids.safetensors", "--out", out,
                               "--grads", "--precision", policy], capture_output=True, text=True)
        if done.returncode != 0:
            return [f"trace {policy}: {done.stderr.strip()}"]
        mine = load_file(out)
        worst = (0.0, "")
        for name, wanted in reference.items():
            if name not in mine:
                faults.append(f"{policy}: {name} is missing")
                continue
            largest = wanted.double().abs().max().item()
            allowed = 1e-9 * largest if policy == "64-true" else 8 * max(distance(f32[name], wanted), largest * 2.0**-24)
            off = distance(mine[name], wanted)
            worst = max(worst, (off / allowed if allowed else off, name))
            if not off <= allowed:
                faults.append(f"{policy}: {name} is {off:.2e} off, allowed {allowed:.2e}")
        for name in mine:
            if name.startswith("grad.") and name not in reference:
                faults.append(f"{policy}: {name} is not a parameter of transformers")
        print(f"  {policy}: worst {worst[0]:.3f} of the allowance ({worst[1]})")
    faults += check_generation(directory, ids, args)
    faults += check_written(directory, ids, reference, args)
    return faults


def check_generation(directory, ids, args):
    """Greedy continuation of a prefix; its log-probabilities are those of a trace over prompt and continuation."""
    prompt = ",".join(str(i) for i in ids[0, :11].tolist())
    done = subprocess.run([args.mantissa, "generate", directory, "--prompt-ids", prompt, "--max-new-tokens", "20", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        return [f"generate: {done.stderr.strip()}"]
    g = json.loads(done.stdout)
    whole = torch.tensor([g["prompt_ids"] + g["ids"]], dtype=torch.int32)
    if "dynamic" in directory.name and len(g["ids"]) != 20:
        return []  # the table depends on the planned length
    save_file({"input_ids": whole}, directory / "whole.safetensors")
    done = subprocess.run([args.mantissa, "trace", directory, "--tokens", directory / "whole.safetensors", "--out",
                           directory / "whole-out.safetensors"], capture_output=True, text=True)
    if done.returncode != 0:
        return [f"trace of the generation: {done.stderr.strip()}"]
    traced = load_file(directory / "whole-out.safetensors")["log_probs"][0, len(g["prompt_ids"]) - 1:]
    mine = torch.tensor(g["log_probs"], dtype=torch.float64).to(torch.float32)
    return [] if torch.equal(traced, mine) else [f"generate: log-probabilities differ by {distance(traced, mine):.2e}"]


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage())


def check_written(directory, ids, reference, args):
    out = directory / "written"
    done = subprocess.run([args.mantissa, "convert", directory, out, "--dtype", "f32", "--overwrite"], capture_output=True, text=True)
    if done.returncode != 0:
        return [f"convert: {done.stderr.strip()}"]
    config = directory / "run.toml"
    config.write_text(f'[run]\nsteps = 1\nout = "{directory / "run"}"\n[model]\npath = "{directory}"\n[data]\nsource = "{directory / "tokens.bin"}"\n'
                      'format = "tokens"\nshuffle = false\nsequence_length = 16\nvalidation = 0\n[batch]\nglobal_batch_size = 2\n'
                      'micro_batch_size = 1\n[optimizer]\nlr = 0.0\n[schedule]\nwarmup_steps = 0\n')
    (directory / "tokens.bin").write_bytes(ids.flatten().numpy().astype("uint16").tobytes())
    done = subprocess.run([args.mantissa, "train", config, "--overwrite", "--quiet", "--set", "optimizer.lr=1e-30"], capture_output=True, text=True)
    faults = [] if done.returncode == 0 else [f"train: {done.stderr.strip()}"]
    for written in (out, directory / "run" / "model"):
        if not written.exists():
            continue
        handler = Warnings()
        logging.getLogger("transformers").addHandler(handler)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = transformers.AutoModelForCausalLM.from_pretrained(written, attn_implementation="eager", dtype=torch.float32).eval()
        logging.getLogger("transformers").removeHandler(handler)
        said = handler.seen + [str(w.message) for w in caught]
        if said:
            faults.append(f"{written.name}: transformers warns: {said[0][:200]}")
        with torch.no_grad():
            off = distance(model(input_ids=ids).logits, reference["logits"])
        if off > 1e-4 * reference["logits"].abs().max().item():
            faults.append(f"{written.name}: logits of the written model are {off:.2e} off")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default="build/mantissa")
    parser.add_argument("--only", default="", help="cases whose label contains this")
    parser.add_argument("--work", type=pathlib.Path, help="a folder for models and traces (a temporary one)")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        work = args.work or pathlib.Path(temporary)
        bad = 0
        for label, config_class, fields in cases():
            if args.only not in label:
                continue
            print(label)
            faults = check(label, config_class, fields, args, work)
            for fault in faults[:6]:
                print("  FAULT", fault)
            bad += bool(faults)
    print(f"{bad} cases differ")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
