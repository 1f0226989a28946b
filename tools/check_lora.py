#!/usr/bin/env python3
"""Compares adapters with transformers and peft: logits, losses, gradients, steps of AdamW, and the files in both directions.

For random models (Llama with grouped queries, GPT-2 with its [in, out] weights, Phi-3 with merged projections) and LoRA, rsLoRA
and DoRA:

- peft writes an adapter with random A and B; `mantissa trace --adapter --grads` reads it. Logits, loss and the gradient of every
  A, B and magnitude are compared with peft's in f64.
- `mantissa train` continues that adapter (adapter.path) for three steps of AdamW over rows of ids; PyTorch does the same in f64.
  Losses and the change of every tensor are compared.
- peft loads the adapter that the run wrote; its logits are compared with those of `mantissa trace --adapter RUN`, and the module
  names that peft adapts with those of the run. `mantissa merge` adds it into the base in f32; transformers loads the result, and
  its logits are compared too.

Needs torch, transformers, peft and safetensors.

usage: tools/check_lora.py MANTISSA
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Phi3Config
from transformers.utils import logging

VOCABULARY, LENGTH, ROWS, STEPS = 96, 24, 4, 3
LR, BETAS, EPS, DECAY = 1e-2, (0.9, 0.95), 1e-8, 0.1

MODELS = {
    "llama-gqa": (LlamaConfig(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                              num_attention_heads=4, num_key_value_heads=2, initializer_range=0.1, attention_bias=True),
                  ["q_proj", "v_proj", "down_proj"]),
    "gpt2": (GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=64, initializer_range=0.1),
             ["c_attn", "mlp.c_proj"]),
    "phi3": (Phi3Config(vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.1, pad_token_id=0),
             ["qkv_proj", "gate_up_proj", "o_proj"]),
}
KINDS = {"lora": {}, "rslora": {"use_rslora": True}, "dora": {"use_dora": True}}


def relative(got, want):
    """The norm of the difference as a share of the norm of `want`."""
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm().clamp_min(1e-300)).item()


def tolerance(inner):
    """The relative error of a result in f32 behind `inner` products and norms in a row: each has a sum of up to 96 terms, whose
    roundings of at most 2^-24 add up to about sqrt(96) of them."""
    return 2.0**-24 * inner * 96**0.5


def random_adapter(model):
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.1 * torch.randn_like(parameter)
        if "lora_magnitude" in name:
            parameter.data = parameter.data * (1 + 0.1 * torch.randn_like(parameter))


def tensors(model):
    """The adapter's parameters by the names of their files."""
    named = {}
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            continue
        name = name.replace(".default", "")
        if "lora_magnitude_vector" in name:
            name = name.removesuffix(".weight")
        named[name] = parameter
    return named


def loss_of(model, ids):
    logits = model(ids).logits
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1)), logits


def trace(mantissa, folder, ids, base, adapter, grads=False):
    save_file({"input_ids": ids.to(torch.int32)}, folder / "ids.safetensors")
    words = [mantissa, "trace", base, "--tokens", folder / "ids.safetensors", "--out", folder / "trace.safetensors",
             "--overwrite", "--quiet"]
    words += ["--adapter", adapter] if adapter else []
    subprocess.run(words + (["--grads"] if grads else []), check=True)
    return load_file(folder / "trace.safetensors")


def train_here(mantissa, folder, data):
    data.numpy().astype("<u2").tofile(folder / "rows.bin")
    (folder / "run.toml").write_text(f"""
[run]
steps = {STEPS}
[model]
path = "base"
[adapter]
kind = "lora"
path = "start"
[data]
source = "rows.bin"
format = "tokens"
shuffle = false
validation = 0
sequence_length = {LENGTH}
[batch]
global_batch_size = {ROWS}
micro_batch_size = 2
[optimizer]
lr = {LR}
betas = [{BETAS[0]}, {BETAS[1]}]
eps = {EPS}
weight_decay = {DECAY}
max_grad_norm = 0.0
[schedule]
name = "constant"
warmup_steps = 0
""")
    subprocess.run([mantissa, "train", folder / "run.toml", "--out", folder / "run", "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines], load_file(folder / "run/adapter/adapter_model.safetensors")


def train_torch(model, data):
    named = tensors(model)
    groups = [{"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    losses = []
    for step in range(STEPS):
        rows = torch.stack([data[i * LENGTH:i * LENGTH + LENGTH + 1] for i in range(step * ROWS, (step + 1) * ROWS)])
        optimizer.zero_grad()
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), rows[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def check(mantissa, folder, config, targets, settings):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    model.save_pretrained(folder / "base")
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM", **settings))
    random_adapter(adapted)
    adapted.save_pretrained(folder / "start")
    start = {name: p.detach().double().clone() for name, p in tensors(adapted).items()}
    adapted = adapted.double()
    ids = torch.randint(0, VOCABULARY, (2, LENGTH))
    data = torch.randint(0, VOCABULARY, (STEPS * ROWS * LENGTH + 1,))
    errors = {}

    loss, logits = loss_of(adapted, ids)
    loss.backward()
    got = trace(mantissa, folder, ids, folder / "base", folder / "start", grads=True)
    errors["logits"] = relative(got["logits"], logits)
    errors["loss"] = abs(got["loss"].item() - loss.item()) / loss.item()
    grads = {}
    for name, parameter in tensors(adapted).items():
        here = "grad." + name.removeprefix("base_model.model.") + (".weight" if "magnitude" in name else "")
        grads[name] = relative(got.pop(here), parameter.grad)
    assert not [name for name in got if name.startswith("grad.")], "gradients of frozen weights"
    errors["gradients"] = max(grads.values())

    adapted.zero_grad()
    losses, trained = train_here(mantissa, folder, data)
    expected = train_torch(adapted, data)
    errors["losses"] = max(abs(a - b) / b for a, b in zip(losses, expected))
    assert trained.keys() == start.keys(), "other names"
    errors["steps"] = max(relative(trained[n].double() - start[n], p.detach() - start[n]) for n, p in tensors(adapted).items())

    base = AutoModelForCausalLM.from_pretrained(folder / "base").float().eval()
    loaded = PeftModel.from_pretrained(base, folder / "run/adapter").double().eval()
    assert tensors(loaded).keys() == trained.keys(), "peft adapts other modules"
    with torch.no_grad():
        want = loaded(ids).logits
    got = trace(mantissa, folder, ids, folder / "base", folder / "run")
    errors["written"] = relative(got["logits"], want)
    subprocess.run([mantissa, "merge", folder / "base", folder / "run", folder / "merged", "--quiet"], check=True,
                   stdout=subprocess.DEVNULL)
    merged = AutoModelForCausalLM.from_pretrained(folder / "merged").double().eval()
    with torch.no_grad():
        errors["merged"] = relative(merged(ids).logits, want)
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mantissa", type=lambda p: pathlib.Path(p).resolve())
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Two layers of six products and norms, forward and backward. AdamW's first steps divide gradients by their own size, which
    # turns a gradient's relative error into one of the step, larger for elements near zero.
    bounds = {"logits": tolerance(16), "loss": tolerance(16), "gradients": tolerance(40), "losses": tolerance(60),
              "steps": 2e-4, "written": tolerance(16), "merged": tolerance(16)}
    failed = False
    print(f"{'':<18}" + "".join(f"{name:>11}" for name in bounds))
    for model, (config, targets) in MODELS.items():
        for kind, settings in KINDS.items():
            with tempfile.TemporaryDirectory() as place:
                errors = check(a.mantissa, pathlib.Path(place), config, targets, settings)
            bad = [name for name, bound in bounds.items() if not errors[name] <= bound]
            failed = failed or bool(bad)
            print(f"{model + ' ' + kind:<18}" + "".join(f"{errors[name]:>11.2g}" for name in bounds) + "  " + " ".join(bad),
                  flush=True)
    print(f"{'bound':<18}" + "".join(f"{bound:>11.2g}" for bound in bounds.values()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
