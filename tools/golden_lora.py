#!/usr/bin/env python3
"""Makes tests/golden/adapters: adapters of the tiny models in tests/golden/families, written by peft, and what peft
computes with them, so that tests need no Python.

    golden_lora.py [DIRECTORY] [--only CASE]

    CASE/adapter_config.json, adapter_model.safetensors   as PeftModel.save_pretrained writes them, without defaults of other methods
    CASE/expected.safetensors   logits, loss and the gradient of every tensor of the adapter, in f64, for families/tokens.safetensors

The model of CASE is BASES[CASE]. A and B are random, magnitudes are not the norms of the weights. With --only, only the
folder of that case is written.
"""
import json

import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from families import IGNORED, AllF64, widened
from golden import GOLDEN, arguments

BASES = {"lora": "mistral", "lora-in-out": "gpt2", "rslora-merged": "phi3", "dora": "llama-tied", "dora-in-out": "gpt2-tied",
         "patterns": "qwen3"}
SETTINGS = {
    "lora": dict(target_modules=["q_proj", "v_proj"], lora_alpha=3),
    "lora-in-out": dict(target_modules=["c_attn", "c_fc"], lora_alpha=6, fan_in_fan_out=True),
    "rslora-merged": dict(target_modules=["qkv_proj", "gate_up_proj"], lora_alpha=3, use_rslora=True),
    "dora": dict(target_modules=["q_proj", "k_proj", "down_proj"], lora_alpha=3, use_dora=True),
    "dora-in-out": dict(target_modules=["c_attn", "mlp.c_proj"], lora_alpha=6, use_dora=True, fan_in_fan_out=True),
    "patterns": dict(target_modules=r".*layers\.1\..*_proj", lora_alpha=3, rank_pattern={"down_proj": 3, "o_proj": 1},
                     alpha_pattern={r".*\.(q|k)_proj": 5, "mlp.up_proj": 1.5}),
}
KEPT = ("peft_type", "r", "bias", "task_type", "use_rslora", "use_dora", "fan_in_fan_out", "lora_alpha", "lora_dropout",
        "target_modules", "rank_pattern", "alpha_pattern", "init_lora_weights", "modules_to_save")


def make(case, families, to):
    base = transformers.AutoModelForCausalLM.from_pretrained(families / BASES[case], dtype=torch.float32).eval()
    torch.manual_seed(7)
    model = get_peft_model(base, LoraConfig(r=2, task_type="CAUSAL_LM", **SETTINGS[case]))
    for name, p in model.named_parameters():
        if "lora_magnitude" in name:
            p.data *= 1 + 0.2 * torch.randn_like(p)
        elif "lora_" in name:
            p.data = 0.3 * torch.randn_like(p)
    model.save_pretrained(to)
    (to / "README.md").unlink(missing_ok=True)
    config = json.loads((to / "adapter_config.json").read_text())
    config = {key: sorted(value) if isinstance(value, list) else value for key, value in config.items() if key in KEPT}
    (to / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")

    adapter = load_file(to / "adapter_model.safetensors")
    plain = transformers.AutoModelForCausalLM.from_pretrained(families / BASES[case], dtype=torch.float32)
    with AllF64():
        wide = get_peft_model(widened(plain), LoraConfig(r=2, task_type="CAUSAL_LM", **SETTINGS[case])).double().eval()
        named = {n.replace(".default", ""): p for n, p in wide.named_parameters() if "lora_" in n}
        for name, p in named.items():
            stored = name if name in adapter else name.removesuffix(".weight")
            p.data = adapter[stored].double()
        tokens = load_file(families / "tokens.safetensors")
        logits = wide(input_ids=tokens["input_ids"]).logits
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens["labels"][:, 1:].flatten(),
                                                 ignore_index=IGNORED)
        loss.backward()
    out = {"logits": logits.detach(), "loss": loss.detach().reshape(1)}
    out |= {"grad." + n.removeprefix("base_model.model."): p.grad for n, p in named.items()}
    save_file({n: t.contiguous() for n, t in out.items()}, to / "expected.safetensors")


def main():
    target, only = arguments(__doc__, "adapters", BASES)
    for case in [only] if only else BASES:
        make(case, GOLDEN / "families", target / case)


if __name__ == "__main__":
    main()
