#!/usr/bin/env python3
"""Runs random models of every family with Mantissa and with transformers and compares the results.

    check_families.py --mantissa build/mantissa [--only qwen2] [--work DIR]

The reference runs transformers' own model code in f64, with its casts to float32 replaced by casts to float64. The checks:

  trace     Logits, log-probabilities, loss and all gradients. `64-true` must agree to 1e-12 of each tensor's largest value.
            `32-true` must be within 8 times the distance of transformers in f32 (at least half an f32 ulp of the largest
            value).
  training  Losses and gradient norms of 20 steps of AdamW with clipping and a cosine schedule, and the final weights.
            `64-true` must agree to 1e-8, two units of the nine digits of metrics.jsonl. `32-true` must be within 8 times
            the largest distance of PyTorch in f32. AdamW's eps is 1e-6. With 1e-8, the first update of an element whose
            gradient is near zero is the learning rate times a sign that f32 cannot resolve, so one element could decide.
  decoding  The log-probabilities of a generation must equal those of a trace of its tokens bit for bit.
  files     Models written by `convert` and `train` must load in transformers without a warning and give the same logits.

Sequences are longer than every window and than the original context of scaled positions. The exit status is 1 if anything
differs.
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

import torch_llama
from families import VOCABULARY, AllF64, distance, make, parameters, stored, trace, widened

LENGTH, ROWS = 41, 2
RUN = """\
[run]
steps = 20

[model]
path = "{model}"

[data]
source = "{tokens}"
format = "tokens"
shuffle = false
sequence_length = {length}
validation = 0

[batch]
global_batch_size = 4
micro_batch_size = 2

[optimizer]
lr = 5e-3
eps = 1e-6

[schedule]
warmup_steps = 5
"""


def cases():
    """Yields (label, config class, fields)."""
    from transformers import (GPT2Config, Gemma2Config, Gemma3TextConfig, Glm4Config, GlmConfig, GraniteConfig, LlamaConfig, MistralConfig,
                              MixtralConfig, Olmo2Config, OlmoeConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig, SmolLM3Config,
                              StableLmConfig)

    def rope(kind, **more):
        return dict(rope_parameters=dict(rope_theta=10000.0, rope_type=kind, **more))

    yield "llama", LlamaConfig, {}
    yield "llama-tied-biases", LlamaConfig, dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, head_dim=10)
    yield "llama-padding", LlamaConfig, dict(pad_token_id=5)
    yield "llama-tied-padding", LlamaConfig, dict(pad_token_id=7, tie_word_embeddings=True)
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
    yield "phi3", Phi3Config, dict(sliding_window=7)
    yield "phi3-tied-padding", Phi3Config, dict(tie_word_embeddings=True, pad_token_id=11, num_key_value_heads=6)
    yield "phi3-partial", Phi3Config, dict(partial_rotary_factor=0.75)
    yield "glm", GlmConfig, dict(head_dim=16)
    yield "glm4", Glm4Config, dict(head_dim=16)
    yield "glm-tied-partial", GlmConfig, rope("yarn", factor=4.0, original_max_position_embeddings=16) | dict(
        head_dim=16, partial_rotary_factor=0.25, attention_bias=False, tie_word_embeddings=True)
    yield "qwen2", Qwen2Config, dict(tie_word_embeddings=True)
    yield "qwen2-window", Qwen2Config, dict(use_sliding_window=True, sliding_window=9, max_window_layers=1)
    yield "qwen2-types", Qwen2Config, dict(use_sliding_window=True, sliding_window=5, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"])
    yield "qwen3", Qwen3Config, dict(head_dim=12)
    yield "qwen3-bias-window", Qwen3Config, dict(head_dim=16, attention_bias=True, use_sliding_window=True,
                                                 sliding_window=11, max_window_layers=2)
    yield "qwen3-moe", Qwen3MoeConfig, dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=20, head_dim=12)
    yield "qwen3-moe-dense-layers", Qwen3MoeConfig, dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=16,
                                                         decoder_sparse_step=2, norm_topk_prob=True, tie_word_embeddings=True)
    yield "mixtral", MixtralConfig, dict(num_local_experts=5)
    yield "mixtral-window", MixtralConfig, dict(num_local_experts=3, sliding_window=7)
    yield "olmo2", Olmo2Config, {}
    yield "olmo2-tied-biases", Olmo2Config, rope("yarn", factor=4.0, original_max_position_embeddings=16) | dict(
        attention_bias=True, tie_word_embeddings=True, head_dim=10, pad_token_id=5)
    yield "olmoe", OlmoeConfig, dict(num_experts=9, num_experts_per_tok=4)
    yield "olmoe-normalized", OlmoeConfig, dict(num_experts=5, num_experts_per_tok=2, norm_topk_prob=True, attention_bias=True)
    yield "smollm3", SmolLM3Config, dict(num_hidden_layers=5)
    yield "smollm3-untied-window", SmolLM3Config, dict(no_rope_layers=[1, 0, 0], use_sliding_window=True, sliding_window=7,
                                                       tie_word_embeddings=False, head_dim=10)
    # Without rotation the gradient of k's bias is zero but for rounding: a softmax does not change with a sum for all keys.
    yield "smollm3-biases", SmolLM3Config, dict(no_rope_layers=[1, 1, 1], attention_bias=True, mlp_bias=True)
    yield "stablelm", StableLmConfig, dict(use_qkv_bias=True)
    yield "stablelm-tied", StableLmConfig, rope("linear", factor=4.0) | dict(tie_word_embeddings=True, partial_rotary_factor=0.5)
    yield "stablelm-parallel", StableLmConfig, dict(num_attention_heads=12, num_key_value_heads=12, partial_rotary_factor=1.0,
                                                    qk_layernorm=True, use_parallel_residual=True)
    yield "granite", GraniteConfig, dict(embedding_multiplier=12.0, attention_multiplier=0.125, residual_multiplier=0.22,
                                         logits_scaling=8.0)
    yield "granite-tied-biases", GraniteConfig, dict(
        attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=10, embedding_multiplier=3.7, attention_multiplier=0.3,
        residual_multiplier=1.3, logits_scaling=6.0)
    yield "gpt2", GPT2Config, {}
    yield "gpt2-untied", GPT2Config, dict(n_embd=40, n_layer=2, n_head=5, n_positions=LENGTH, n_inner=50,
                                          tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True)
    yield "gpt2-gelu", GPT2Config, dict(activation_function="gelu")
    yield "gpt2-quick-gelu", GPT2Config, dict(activation_function="quick_gelu")
    yield "gemma2", Gemma2Config, dict(head_dim=8, sliding_window=6, query_pre_attn_scalar=11)
    yield "gemma2-padding", Gemma2Config, dict(head_dim=8, sliding_window=6, query_pre_attn_scalar=11, pad_token_id=0)
    yield "gemma2-caps-off", Gemma2Config, dict(head_dim=16, sliding_window=6, attn_logit_softcapping=None,
                                                final_logit_softcapping=None, tie_word_embeddings=False)
    yield "gemma2-tight", Gemma2Config, dict(head_dim=8, sliding_window=5, attn_logit_softcapping=0.5,
                                             final_logit_softcapping=1.5)
    yield "gemma3", Gemma3TextConfig, dict(head_dim=8, sliding_window=6, num_hidden_layers=7, query_pre_attn_scalar=8)
    yield "gemma3-linear", Gemma3TextConfig, dict(
        head_dim=8, sliding_window=6, layer_types=["sliding_attention", "full_attention", "full_attention"],
        rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                             sliding_attention=dict(rope_type="default", rope_theta=5000.0)))


def run_mantissa(args, *words):
    """Returns stdout (None if the command failed) and stderr."""
    done = subprocess.run([args.mantissa, *map(str, words)], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None, done.stderr.strip()


class Case:
    """A model in f32, a folder with its files, and its tokens."""

    def __init__(self, label, config_class, fields, work):
        self.label, self.directory = label, work / label
        self.model = make(config_class, fields)
        self.model.save_pretrained(self.directory, max_shard_size="20KB" if "yarn" in label or "untied" in label else "5GB")
        generator = torch.Generator().manual_seed(3)
        self.ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
        save_file({"input_ids": self.ids.int()}, self.directory / "ids.safetensors")
        stream = torch.randint(0, VOCABULARY, (9 * LENGTH + 1,), generator=generator)
        (self.directory / "tokens.bin").write_bytes(stream.numpy().astype("<u2").tobytes())
        (self.directory / "run.toml").write_text(RUN.format(model=self.directory.resolve(), length=LENGTH,
                                                            tokens=(self.directory / "tokens.bin").resolve()))


def check(label, config_class, fields, args, work):
    case = Case(label, config_class, fields, work)
    with AllF64():
        reference = trace(widened(case.model), case.ids)
    faults = check_trace(case, reference, args)
    faults += check_generation(case, args)
    faults += check_training(case, args)
    faults += check_written(case, reference, args)
    return faults


def check_trace(case, reference, args):
    f32 = trace(case.model, case.ids)
    faults = []
    for policy in ("64-true", "32-true"):
        out = case.directory / f"{policy}.safetensors"
        _, error = run_mantissa(args, "trace", case.directory, "--tokens", case.directory / "ids.safetensors", "--out", out,
                                "--grads", "--precision", policy)
        if error:
            return [f"trace {policy}: {error}"]
        mine = load_file(out)
        worst = (0.0, "")
        for name, wanted in reference.items():
            if name not in mine:
                faults.append(f"{policy}: {name} is missing")
                continue
            largest = wanted.abs().max().item()
            allowed = 1e-12 * largest if policy == "64-true" else 8 * max(distance(f32[name], wanted), largest * 2.0**-24)
            off = distance(mine[name], wanted)
            worst = max(worst, (off / allowed if allowed else off, name))
            if not off <= allowed:
                faults.append(f"{policy}: {name} is {off:.2e} off, allowed {allowed:.2e}")
        faults += [f"{policy}: {name} is not a parameter of transformers"
                   for name in mine if name.startswith("grad.") and name not in reference]
        print(f"  trace {policy}: worst {worst[0]:.3f} of the allowance ({worst[1]})")
    return faults


def check_generation(case, args):
    """Continues a prefix greedily. Its log-probabilities must equal those of a trace over prompt and continuation."""
    count = 20
    prompt = ",".join(str(i) for i in case.ids[0, :11].tolist())
    out, error = run_mantissa(args, "generate", case.directory, "--prompt-ids", prompt, "--max-new-tokens", count, "--json")
    if error:
        return [f"generate: {error}"]
    g = json.loads(out)
    if "dynamic" in case.label and len(g["ids"]) != count:
        return []  # the angles depend on the planned length
    whole = torch.tensor([g["prompt_ids"] + g["ids"]], dtype=torch.int32)
    tokens, traced = case.directory / "whole.safetensors", case.directory / "whole-out.safetensors"
    save_file({"input_ids": whole}, tokens)
    _, error = run_mantissa(args, "trace", case.directory, "--tokens", tokens, "--out", traced)
    if error:
        return [f"trace of the generation: {error}"]
    wanted = load_file(traced)["log_probs"][0, len(g["prompt_ids"]) - 1:]
    mine = torch.tensor(g["log_probs"], dtype=torch.float64).to(torch.float32)
    return [] if torch.equal(wanted, mine) else [f"generate: log-probabilities differ by {distance(wanted, mine):.2e}"]


def train(model, run):
    """Trains the model in place. Returns the losses and gradient norms of the run's steps."""
    settings, steps, schedule = run["optimizer"], run["run"]["steps"], run["schedule"]
    data = torch_llama.TokenFile(run["data"]["source"], VOCABULARY, run["data"]["sequence_length"],
                                 run["batch"]["global_batch_size"])
    optimizer = torch_llama.adamw(list(model.parameters()), settings)
    losses, norms = [], []
    for step in range(1, steps + 1):
        rows = data.step(step)
        logits = model(input_ids=rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), settings["max_grad_norm"]).item())
        for group in optimizer.param_groups:
            group["lr"] = torch_llama.learning_rate(schedule["name"], settings["lr"], step, steps, schedule["warmup_steps"],
                                                    schedule["min_lr_ratio"])
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def check_training(case, args):
    run, _, _ = torch_llama.read_run(case.directory / "run.toml")
    with AllF64():
        twin = widened(case.model)
        reference = train(twin, run)
        weights = stored(parameters(twin, {name: p.detach() for name, p in twin.named_parameters()}))
    with_f32 = type(case.model)(case.model.config).eval()
    with_f32.load_state_dict(case.model.state_dict())
    f32 = train(with_f32, run)
    faults = []
    for policy in ("64-true", "32-true"):
        out = case.directory / f"run-{policy}"
        _, error = run_mantissa(args, "train", case.directory / "run.toml", "--out", out, "--overwrite", "--quiet",
                                "--precision", policy)
        if error:
            return [f"train {policy}: {error}"]
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        for name, wanted, other in zip(("loss", "grad_norm"), reference, f32):
            mine = torch.tensor([line[name] for line in lines], dtype=torch.float64)
            if mine.numel() != wanted.numel():
                faults.append(f"train {policy}: {mine.numel()} steps")
                continue
            spread = max(distance(other, wanted), wanted.max().item() * 2.0**-24)
            allowed = 1e-8 * wanted if policy == "64-true" else torch.full_like(wanted, 8 * spread)
            share = ((mine - wanted).abs() / allowed).max().item()
            print(f"  train {policy}: {name} {share:.3f} of the allowance")
            if not share <= 1:
                faults.append(f"train {policy}: {name} is {distance(mine, wanted):.2e} off")
        if policy == "64-true":
            faults += check_weights(out / "model", weights)
    return faults


def check_weights(directory, weights):
    """Compares the master weights of 64-true, written in f32. Allows half an ulp of each element, and 1e-8 of the largest because
    20 steps sum in another order."""
    written = {}
    for file in sorted(directory.glob("*.safetensors")):
        written |= load_file(file)
    faults = []
    for name, wanted in weights.items():
        allowed = wanted.abs() * 2.0**-24 + 1e-8 * wanted.abs().max()
        if not torch.all((written[name].double() - wanted).abs() <= allowed):
            faults.append(f"train 64-true: {name} is {distance(written[name], wanted):.2e} off at the end")
    return faults


class Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.seen = []

    def emit(self, record):
        self.seen.append(record.getMessage())


def check_written(case, reference, args):
    converted = case.directory.with_name(case.directory.name + "-written")  # beside the input, not in it
    _, error = run_mantissa(args, "convert", case.directory, converted, "--dtype", "f32", "--overwrite")
    if error:
        return [f"convert: {error}"]
    # An update of this size changes no f32 weight.
    _, error = run_mantissa(args, "train", case.directory / "run.toml", "--out", case.directory / "run", "--overwrite", "--quiet",
                            "--set", "optimizer.lr=1e-30")
    if error:
        return [f"train: {error}"]
    faults = []
    for written in (converted, case.directory / "run" / "model"):
        handler = Warnings()
        logging.getLogger("transformers").addHandler(handler)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = transformers.AutoModelForCausalLM.from_pretrained(written, attn_implementation="eager",
                                                                      dtype=torch.float32).eval()
        logging.getLogger("transformers").removeHandler(handler)
        said = handler.seen + [str(w.message) for w in caught]
        if said:
            faults.append(f"{written.name}: transformers warns: {said[0][:200]}")
        with torch.no_grad():
            off = distance(model(input_ids=case.ids).logits, reference["logits"])
        if off > 1e-4 * reference["logits"].abs().max().item():
            faults.append(f"{written.name}: logits of the written model are {off:.2e} off")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mantissa", default="build/mantissa")
    parser.add_argument("--only", default="", help="cases whose label contains this")
    parser.add_argument("--work", type=pathlib.Path, help="folder for models and traces (default: a temporary one)")
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
