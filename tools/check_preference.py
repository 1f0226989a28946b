#!/usr/bin/env python3
"""Compares preference training with transformers: DPO, cDPO, IPO, DPO with log-likelihood, SimPO, ORPO, KTO, APO-zero, and reward
models with margins.

A random Llama is trained on pairs of texts, as bytes without a template. PyTorch computes the same in f64 from transformers'
logits, with losses written out here:

- one step of gradient descent at rate 1, so that each weight changes by its gradient: the loss, the measurements of
  metrics.jsonl, and the gradient of every weight. The reference is another model, so that the pairs differ from it.
- three steps of AdamW with the starting weights as the reference: the losses, and the change of every weight.
- for reward models, transformers' LlamaForSequenceClassification loads what the run wrote: its scores of every row, one row at
  a time and in padded batches, against the mean rewards of the run's validation.

- KTO and APO-zero read the same answers with labels. KTO's divergence is that of each prompt with the answer of the row before.
- LoRA: peft loads the adapter that a run wrote; its losses on the held-out pairs equal those of the run's validation.

Needs torch, transformers, peft and safetensors.

usage: tools/check_preference.py MANTISSA
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
from transformers.utils import logging

LAYERS, HIDDEN, FEED, VOCABULARY = 2, 64, 96, 256
PAIRS, HELD_OUT, STEPS, LENGTH = 6, 3, 3, 64
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.95), 1e-8, 0.1
SEPARATOR = 0  # of bytes

DPO = {
    "dpo": {"beta": 0.1},
    "cdpo": {"beta": 0.3, "label_smoothing": 0.2},
    "ipo": {"beta": 0.2, "loss": "ipo"},
    "dpo+nll": {"beta": 0.1, "nll_coef": 0.7},
    "simpo": {"beta": 2.0, "loss": "simpo", "gamma": 0.5, "nll_coef": 0.3},
    "orpo": {"beta": 0.2, "loss": "orpo"},
}


def pairs(count, seed):
    draw = random.Random(seed)
    rows = []
    for i in range(count):
        words = ["".join(draw.choice("aeioustr") for _ in range(draw.randint(2, 7))) for _ in range(draw.randint(1, 4))]
        rows.append({"prompt": " ".join(words) + "?", "chosen": " yes, " + words[0] + ".", "rejected": " " + words[-1] * draw.randint(1, 3),
                     "margin": round(draw.uniform(-1, 1), 3)})
    return rows


def encoded(row, side):
    """The ids of a row, and the number of those of its prompt."""
    prompt = list(row["prompt"].encode())
    return prompt + list(row[side].encode()) + [SEPARATOR], len(prompt)


def log_prob(model, row, side):
    """The sum over the answer's tokens, and their number."""
    ids, prompt = encoded(row, side)
    logits = model(torch.tensor([ids])).logits[0, :-1]
    each = logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]]
    return each[prompt - 1:].sum(), len(ids) - prompt


def dpo_step(model, reference, rows, beta, label_smoothing=0.0, loss="sigmoid", nll_coef=0.0, gamma=0.0):
    """The mean loss of the pairs, and the measurements."""
    losses, chosen, rejected = [], [], []
    for row in rows:
        (c, length), (r, other) = log_prob(model, row, "chosen"), log_prob(model, row, "rejected")
        if loss in ("simpo", "orpo"):
            mean_c, mean_r = c / length, r / other
            if loss == "simpo":
                each = -logsigmoid(beta * (mean_c - mean_r) - gamma)
            else:
                odds = lambda x: x - torch.log1p(-torch.exp(x))
                each = -mean_c - beta * logsigmoid(odds(mean_c) - odds(mean_r))
            losses.append(each - nll_coef * mean_c)
            chosen.append((beta * mean_c).detach())
            rejected.append((beta * mean_r).detach())
            continue
        with torch.no_grad():
            ref_c, ref_r = log_prob(reference, row, "chosen")[0], log_prob(reference, row, "rejected")[0]
        delta = (c - ref_c) - (r - ref_r)
        if loss == "ipo":
            each = (delta - 1 / (2 * beta)) ** 2
        else:
            each = -(1 - label_smoothing) * logsigmoid(beta * delta) - label_smoothing * logsigmoid(-beta * delta)
        losses.append(each - nll_coef * c / length)
        chosen.append(beta * (c - ref_c).detach())
        rejected.append(beta * (r - ref_r).detach())
    return torch.stack(losses).mean(), measured(torch.stack(chosen), torch.stack(rejected))


KTO = {
    "kto": {"beta": 0.3, "desirable_weight": 1.2, "undesirable_weight": 0.7},
    "apo-zero": {"beta": 0.3, "loss": "apo-zero"},
}


def labelled(rows):
    """Answers with labels: those of pairs, in an order in which neighbours have different prompts."""
    return [{"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"} for side in ("chosen", "rejected") for row in rows]


def kto_step(model, reference, rows, beta, loss="kto", desirable_weight=1.0, undesirable_weight=1.0):
    """The mean loss of the answers, and the measurements."""
    kl = 0.0
    if loss == "kto":
        with torch.no_grad():
            others = [{"prompt": row["prompt"], "completion": rows[i - 1]["completion"]} for i, row in enumerate(rows)]
            each = [log_prob(model, o, "completion")[0] - log_prob(reference, o, "completion")[0] for o in others]
            kl = max(0.0, torch.stack(each).mean().item())
    losses, rewards = [], {True: [], False: []}
    for row in rows:
        with torch.no_grad():
            base = log_prob(reference, row, "completion")[0]
        ratio = log_prob(model, row, "completion")[0] - base
        z = beta * (ratio - kl) if row["label"] else beta * (kl - ratio)
        losses.append((desirable_weight if row["label"] else undesirable_weight) * (1 - torch.sigmoid(z)))
        rewards[row["label"]].append((beta * ratio).item())
    chosen, rejected = (sum(rewards[label]) / len(rewards[label]) for label in (True, False))
    metrics = {"margin": chosen - rejected, "chosen_reward": chosen, "rejected_reward": rejected}
    return torch.stack(losses).mean(), metrics | ({"kl": kl} if loss == "kto" else {})


def score(model, row, side):
    return model(torch.tensor([encoded(row, side)[0]])).logits[0, 0]


def reward_step(model, rows):
    chosen = torch.stack([score(model, row, "chosen") for row in rows])
    rejected = torch.stack([score(model, row, "rejected") for row in rows])
    margins = torch.tensor([row["margin"] for row in rows], dtype=torch.float64)
    return -logsigmoid(chosen - rejected - margins).mean(), measured(chosen.detach(), rejected.detach())


def measured(chosen, rejected):
    return {"accuracy": (chosen > rejected).double().mean().item(), "margin": (chosen - rejected).mean().item(),
            "chosen_reward": chosen.mean().item(), "rejected_reward": rejected.mean().item()}


def config_text(objective, settings, optimizer, steps, adapter=""):
    keys = "".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items())
    section = f"[{objective}]\n{keys}" if objective != "reward" else ""
    source = "labelled" if objective == "kto" else "pairs"
    return f"""
[run]
steps = {steps}
[model]
path = "model"
[train]
objective = "{objective}"
{section}{adapter}
[data]
source = "{source}.jsonl"
validation = ["held_out_{source}.jsonl"]
template = "none"
tokenizer = "byte"
shuffle = false
sequence_length = {LENGTH}
[batch]
global_batch_size = {2 * PAIRS if objective == "kto" else PAIRS}
micro_batch_size = 2
[optimizer]
{optimizer}
max_grad_norm = 0.0
[schedule]
name = "constant"
warmup_steps = 0
"""


SGD = 'name = "sgd"\nlr = 1.0'
ADAMW = f"lr = {LR}\nbetas = [{BETAS[0]}, {BETAS[1]}]\neps = {EPS}\nweight_decay = {DECAY}"


def run(mantissa, folder, text):
    (folder / "run.toml").write_text(text)
    subprocess.run([mantissa, "train", folder / "run.toml", "--out", folder / "out", "--overwrite", "--quiet", "--threads", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "out/metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], next(line for line in lines if "validation_loss" in line)


def written(folder):
    return load_file(folder / "out/model/model.safetensors")


def adamw(model):
    """AdamW as the run has it: decay for matrices alone."""
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)


def relative(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm().clamp_min(1e-300)).item()


def tolerance(inner):
    """The relative error of a result in f32 behind `inner` products and norms in a row: each has a sum of up to 96 terms, whose
    roundings of at most 2^-24 add up to about sqrt(96) of them."""
    return 2.0**-24 * inner * 96**0.5


def check_step(mantissa, folder, text, model, loss_of, rows, held_out):
    """One step of gradient descent at rate 1."""
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    model.zero_grad()
    loss, metrics = loss_of(model, rows)
    loss.backward()
    lines, validation = run(mantissa, folder, text)
    after = written(folder)
    errors = {"loss": abs(lines[0]["loss"] - loss.item()) / abs(loss.item())}
    # A reward is a difference of sums of log-probabilities, of which each has the error of a log-probability.
    size = max(abs(v) for v in metrics.values()) + 1
    errors["metrics"] = max(abs(lines[0][name] - value) for name, value in metrics.items()) / size
    errors["gradients"] = 0
    for name, parameter in model.named_parameters():
        got = before[name].double() - after[name].double()
        rounding = 2.0**-24 * before[name].double().norm() / parameter.grad.norm()  # of the weight that moves
        errors["gradients"] = max(errors["gradients"], relative(got, parameter.grad) - rounding.item())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(after[name])
        want, _ = loss_of(model, held_out)
    errors["held out"] = abs(validation["validation_loss"] - want.item()) / abs(want.item())
    return errors


def check_steps(mantissa, folder, text, model, loss_of, rows):
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = adamw(model)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss, _ = loss_of(model, rows)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    lines, _ = run(mantissa, folder, text)
    after = written(folder)
    return {"losses": max(abs(a["loss"] - b) / abs(b) for a, b in zip(lines, losses)),
            "steps": max(relative(after[n].double() - before[n], p.detach() - before[n]) for n, p in model.named_parameters())}


def check_dpo(mantissa, folder, settings, rows, held_out):
    with_reference = settings if settings.get("loss") in ("simpo", "orpo") else settings | {"reference": "reference"}
    load = lambda name: LlamaForCausalLM.from_pretrained(folder / name).double().eval()
    reference = load("reference")
    errors = check_step(mantissa, folder, config_text("dpo", with_reference, SGD, 1), load("model"),
                        lambda m, r: dpo_step(m, reference, r, **settings), rows, held_out)
    start = load("model")
    return errors | check_steps(mantissa, folder, config_text("dpo", settings, ADAMW, STEPS), load("model"),
                                lambda m, r: dpo_step(m, start, r, **settings), rows)


def check_kto(mantissa, folder, settings, rows, held_out):
    load = lambda name: LlamaForCausalLM.from_pretrained(folder / name).double().eval()
    reference, rows, held_out = load("reference"), labelled(rows), labelled(held_out)
    errors = check_step(mantissa, folder, config_text("kto", settings | {"reference": "reference"}, SGD, 1), load("model"),
                        lambda m, r: kto_step(m, reference, r, **settings), rows, held_out)
    start = load("model")
    return errors | check_steps(mantissa, folder, config_text("kto", settings, ADAMW, STEPS), load("model"),
                                lambda m, r: kto_step(m, start, r, **settings), rows)


def check_reward(mantissa, folder, rows, held_out):
    """The run begins with the weights of a reward model, and its result is read by transformers."""
    load = lambda name: LlamaForSequenceClassification.from_pretrained(folder / name).double().eval()
    text = lambda optimizer, steps: config_text("reward", {}, optimizer, steps).replace('path = "model"', 'path = "scores"')
    errors = check_step(mantissa, folder, text(SGD, 1), load("scores"), reward_step, rows, held_out)
    errors |= check_steps(mantissa, folder, text(ADAMW, STEPS), load("scores"), reward_step, rows)
    _, validation = run(mantissa, folder, config_text("reward", {}, ADAMW, STEPS))  # a new head on a language model
    model = AutoModelForSequenceClassification.from_pretrained(folder / "out/model").double().eval()
    assert type(model) is LlamaForSequenceClassification and model.config.num_labels == 1
    with torch.no_grad():
        loss, metrics = reward_step(model, held_out)
        errors["written"] = abs(validation["validation_loss"] - loss.item()) / loss.item()
        errors["written"] = max([errors["written"]] + [abs(validation["validation_" + n] - v) / 10 for n, v in metrics.items()])
        # A batch, padded with an id that no row has.
        model.config.pad_token_id = 255
        ids = [encoded(row, "chosen")[0] for row in held_out]
        longest = max(len(i) for i in ids)
        batch = torch.tensor([i + [255] * (longest - len(i)) for i in ids])
        mean = model(batch, attention_mask=(batch != 255).long()).logits.mean().item()
        errors["batch"] = abs(mean - metrics["chosen_reward"])
    return errors


LORA = '[adapter]\nkind = "lora"\nrank = 4\nalpha = 8\ntarget = ["*.q_proj", "*.down_proj"]\n'


def check_adapters(mantissa, folder, rows, held_out):
    errors = {}
    _, validation = run(mantissa, folder, config_text("dpo", DPO["dpo"], ADAMW, STEPS, LORA))
    base = LlamaForCausalLM.from_pretrained(folder / "model")
    reference = LlamaForCausalLM.from_pretrained(folder / "model").double().eval()
    model = PeftModel.from_pretrained(base, folder / "out/adapter").double().eval()
    with torch.no_grad():
        loss, _ = dpo_step(model, reference, held_out, **DPO["dpo"])
    errors["dpo"] = abs(validation["validation_loss"] - loss.item()) / loss.item()
    _, validation = run(mantissa, folder, config_text("reward", {}, ADAMW, STEPS, LORA))
    base = LlamaForSequenceClassification.from_pretrained(folder / "model", num_labels=1)
    model = PeftModel.from_pretrained(base, folder / "out/adapter").double().eval()
    with torch.no_grad():
        loss, metrics = reward_step(model, held_out)
    errors["reward"] = abs(validation["validation_loss"] - loss.item()) / loss.item()
    errors["reward"] = max(errors["reward"], abs(validation["validation_chosen_reward"] - metrics["chosen_reward"]))
    return errors


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mantissa", type=lambda p: pathlib.Path(p).resolve())
    a = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    rows, held_out = pairs(PAIRS, 1), pairs(HELD_OUT, 2)
    # Two layers of six products and norms and the head, forward and backward. A loss is a function of differences of
    # log-probabilities of a few dozen tokens. AdamW's first steps divide gradients by their own size, which turns a gradient's
    # relative error into one of the step, larger for elements near zero.
    bounds = {"loss": tolerance(60), "metrics": tolerance(60), "gradients": tolerance(60), "held out": tolerance(90),
              "losses": tolerance(120), "steps": 1e-3, "written": tolerance(60), "batch": tolerance(60), "dpo": tolerance(120),
              "reward": tolerance(60)}
    failed = False
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        for name, lines in [("pairs", rows), ("held_out_pairs", held_out), ("labelled", labelled(rows)),
                            ("held_out_labelled", labelled(held_out))]:
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        config = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FEED, num_hidden_layers=LAYERS,
                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=LENGTH, initializer_range=0.1)
        for seed, name in enumerate(["model", "reference"]):
            torch.manual_seed(seed)
            LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(folder / name)
        LlamaForSequenceClassification(LlamaConfig(**config, num_labels=1)).save_pretrained(folder / "scores")
        checks = [(name, lambda s=s: check_dpo(a.mantissa, folder, s, rows, held_out)) for name, s in DPO.items()]
        checks += [(name, lambda s=s: check_kto(a.mantissa, folder, s, rows, held_out)) for name, s in KTO.items()]
        checks += [("reward", lambda: check_reward(a.mantissa, folder, rows, held_out)),
                   ("adapters", lambda: check_adapters(a.mantissa, folder, rows, held_out))]
        for name, check in checks:
            errors = check()
            bad = [n for n, error in errors.items() if not error <= bounds[n]]
            failed = failed or bool(bad)
            print(f"{name:<9}" + "  ".join(f"{n} {error:.2g}" for n, error in errors.items()) +
                  (f"  above the bound: {', '.join(bad)}" if bad else ""), flush=True)
    print("bounds   " + "  ".join(f"{n} {bound:.2g}" for n, bound in bounds.items()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
