#!/usr/bin/env python3
"""Writes the load-balancing loss of transformers for the models with experts of tests/golden/families.

    golden_balance.py [DIRECTORY] [--only CASE]

    CASE/balance_f64.safetensors   loss [rows]: load_balancing_loss_func of each row; and of their mean, 32 elements of
                                   each gradient that is not zero, all in f64 (tools/golden_families.py)
"""
import torch
import transformers
from safetensors.torch import load_file, save_file

from families import AllF64, make, parameters, widened
from golden import arguments
from golden_families import SHAPE, cases
from golden_trace import sample


def write_case(directory, config_class, fields, ids):
    form = torch.bfloat16 if directory.name.endswith("tied") else torch.float32
    model = make(config_class, SHAPE | fields, form=form)
    with AllF64():
        twin = widened(model)
        losses = torch.stack([twin(input_ids=row[None], output_router_logits=True).aux_loss for row in ids])
        losses.mean().backward()
        grads = parameters(twin, {name: p.grad.clone() for name, p in twin.named_parameters() if p.grad is not None})
        out = {"loss": losses.detach()} | {f"grad.{name}": g for name, g in grads.items() if g.count_nonzero() > 0}
    save_file({name: sample(name, t) for name, t in out.items()}, directory / "balance_f64.safetensors")


def main():
    routed = [case for case in cases() if "num_experts_per_tok" in case[2]]
    root, only = arguments(__doc__, "families", [name for name, _, _ in routed])
    transformers.utils.logging.disable_progress_bar()
    ids = load_file(root / "tokens.safetensors")["input_ids"]
    for name, config_class, fields in routed:
        if only in (None, name):
            write_case(root / name, config_class, fields, ids)


if __name__ == "__main__":
    main()
