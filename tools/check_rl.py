#!/usr/bin/env python3
"""Replays steps of reinforcement learning with transformers, under 32-true, bf16-mixed and 16-mixed.

A random Llama of bytes is rewarded for letters, with stochastic gradient descent, so that each step changes every weight by its
gradient times the rate. The states of the run give the weights before and after each step, and the ids of the responses. From
these, PyTorch computes everything else in f64, with the formulas written out here: rewards, log-probabilities of the policy, of
the rollout's policy and of the reference, advantages, the loss and its gradient. A rollout serves two steps, so that the ratios
of the second one differ from 1. Under 32-true some of its tokens are clipped; in the other formats the rate is low, because
rounding decides about tokens near a bound, whose gradients come and go as a whole.

Tolerances. An f32 weight that moves is known to 2^-24 of its size: that much of each gradient, divided by the rate, is no error.
The rest are the roundings of the passes: in a format with unit roundoff u, each of the R results and operands that are rounded on
a token's way to a gradient changes it by at most u, and by u/√3 in the mean square. Independent roundings add as squares, also
those of different responses, whose gradients g_i cancel in the sum but whose errors do not:

    |error| ≤ u √(R/3) √(Σ |g_i|²)

with R = 3 (forward, and two products backward) · 3 (two operands and a result) · the products in a row. In f32 a result is a sum
of up to 96 terms, which adds as many roundings. Weights are read in the same format, so that nothing else differs.

One more run has a reward model of its own as the reward: transformers' classifier scores the ids of its responses.

Needs torch, transformers and safetensors.

usage: tools/check_rl.py MANTISSA
"""
import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification
from transformers.utils import logging

LAYERS, HIDDEN, FEED, VOCABULARY = 2, 64, 96, 256
PROMPTS, SAMPLES, TOKENS, ROLLOUTS, EPOCHS = 5, 4, 12, 3, 2
PRODUCTS = LAYERS * 6 + 1  # in a row: norm and projection, scores, values, output, gate and up, down; and the head
ROUNDOFF = {"32-true": 2.0**-24, "bf16-mixed": 2.0**-8, "16-mixed": 2.0**-11}
RATES = {"32-true": 0.3, "bf16-mixed": 0.002, "16-mixed": 0.002}
CLIP, KL = 0.2, 0.05

CASES = {
    "grpo": {},
    "dr-grpo": {"loss_mean": "constant"},
    "rloo": {"kl": "k2"},
    "reinforce++": {"kl": "k1", "kl_in": "reward"},
    "reinforce++-baseline": {"loss_mean": "sequence", "dual_clip": 1.5},
    "ppo": {"kl": "k1", "kl_in": "reward", "entropy_coef": 0.02},
}


def config_text(algorithm, settings, policy):
    rl = {"algorithm": algorithm, "reward": "regex:[a-mA-M]", "prompts_per_step": PROMPTS, "samples_per_prompt": SAMPLES,
          "max_new_tokens": TOKENS, "epochs": EPOCHS, "kl_coef": KL} | settings
    keys = "".join(f"{k} = {json.dumps(v)}\n" for k, v in rl.items())
    return f"""
[run]
steps = {ROLLOUTS * EPOCHS}
[model]
path = "model"
[precision]
policy = "{policy}"
[data]
source = "prompts.jsonl"
template = "none"
tokenizer = "byte"
validation = 0.0
[optimizer]
name = "sgd"
lr = {RATES[policy]}
weight_decay = 0.0
max_grad_norm = 0.0
[schedule]
name = "constant"
warmup_steps = 0
[checkpoint]
interval = 1
keep = 99
[rl]
{keys}"""


def read_state(out, step):
    """The weights after a step, and the ids, prompt lengths and prompts of its rollout."""
    tensors = load_file(out / f"state/step-{step:08d}/state.safetensors")
    weights = {n.removeprefix("master."): t for n, t in tensors.items() if n.startswith("master.")}
    ids, responses = tensors["task.ids"].tolist(), []
    for length, prompt, group, _ in tensors["task.responses"].view(-1, 4).tolist():
        responses.append((ids[:length], prompt, group))
        ids = ids[length:]
    return weights, responses, tensors["task.old_log_probs"]


def load(model, weights):
    """Returns the weight of the value head, if there is one."""
    own = {n: w.double() for n, w in weights.items() if n != "value_head.weight"}
    model.load_state_dict(own)
    head = weights.get("value_head.weight")
    return None if head is None else head.double().requires_grad_()


def forward(model, responses, head=None):
    """Log-probabilities, entropies and values of the tokens of each response."""
    result = []
    for ids, prompt, _ in responses:
        out = model(torch.tensor([ids]), output_hidden_states=True)
        all_log_probs = out.logits[0, prompt - 1:-1].log_softmax(-1)
        log_probs = all_log_probs.gather(-1, torch.tensor(ids[prompt:])[:, None])[:, 0]
        entropies = -(all_log_probs.exp() * all_log_probs).sum(-1)
        values = None if head is None else out.hidden_states[-1][0, prompt - 1:-1] @ head[0]
        result.append((log_probs, entropies, values))
    return result


def divergence(p, q, kind):
    if kind == "k1":
        return p - q
    return (p - q)**2 / 2 if kind == "k2" else (torch.exp(q - p) - 1 + (p - q)).clamp(-10, 10)


def reward_of(response):
    ids, prompt, _ = response
    text = bytes(i for i in ids[prompt:] if i != 0)
    return 1.0 if re.search(rb"[a-mA-M]", text) else 0.0


def advantages_of(algorithm, rewards, groups):
    """`rewards` of the tokens of each response, for all algorithms but ppo."""
    if algorithm == "reinforce++":
        each = [r.flip(0).cumsum(0).flip(0) for r in rewards]
    else:
        totals, each = torch.stack([r.sum() for r in rewards]), []
        for i, reward in enumerate(totals):
            own = totals[[j for j, g in enumerate(groups) if g == groups[i]]]
            a = reward - own.mean()
            if algorithm == "rloo":
                a = reward - (own.sum() - reward) / (len(own) - 1)
            if algorithm == "grpo":
                a = a / (own.std() + 1e-6)
            each.append(a.expand(len(rewards[i])))
    return whitened(each) if algorithm.startswith("reinforce++") else each


def whitened(each):
    every = torch.cat(list(each))
    return [(a - every.mean()) / (every.var() + 1e-8).sqrt() for a in each]


def estimates(rewards, values):
    """Advantages with γ = λ = 1, and returns."""
    returns = [r.flip(0).cumsum(0).flip(0) for r in rewards]
    return whitened([g - v for g, v in zip(returns, values)]), returns


class Rollout:
    """What the steps on one rollout share. `clipped` is the share of tokens of the last losses()."""

    def __init__(self, algorithm, settings, responses, model, weights, reference):
        self.kind, self.in_reward = settings.get("kl", "k3"), settings.get("kl_in") == "reward"
        self.settings, self.responses = settings, responses
        with torch.no_grad():
            old = forward(model, responses, load(model, weights))
            self.reference = [log_probs for log_probs, _, _ in forward(reference, responses)]
        self.old, self.values = [o[0] for o in old], [o[2] for o in old]
        rewards = [torch.zeros_like(o) for o in self.old]
        for i, response in enumerate(responses):
            rewards[i][-1] = reward_of(response)
            if self.in_reward:
                rewards[i] -= KL * divergence(self.old[i], self.reference[i], self.kind)
        self.returns = None
        if algorithm == "ppo":
            self.advantages, self.returns = estimates(rewards, self.values)
        else:
            self.advantages = advantages_of(algorithm, rewards, [g for _, _, g in responses])

    def losses(self, model, head):
        """The parts of the loss that belong to each response."""
        parts, count, self.clipped = [], sum(len(o) for o in self.old), 0
        for i, (log_probs, entropies, values) in enumerate(forward(model, self.responses, head)):
            ratio, a = torch.exp(log_probs - self.old[i]), self.advantages[i]
            loss = torch.maximum(-ratio * a, -ratio.clamp(1 - CLIP, 1 + CLIP) * a)
            self.clipped += (loss > -ratio * a).sum().item() / count
            if bound := self.settings.get("dual_clip"):
                loss = torch.where(a < 0, torch.minimum(loss, -bound * a), loss)
            if not self.in_reward:
                loss = loss + KL * divergence(log_probs, self.reference[i], self.kind)
            loss = loss - self.settings.get("entropy_coef", 0) * entropies
            if self.returns:
                near = self.values[i] + (values - self.values[i]).clamp(-0.5, 0.5)
                loss = loss + 0.25 * torch.maximum((values - self.returns[i])**2, (near - self.returns[i])**2)
            mean = self.settings.get("loss_mean", "token")
            rows = len(self.old)
            parts.append({"token": loss.sum() / count, "sequence": loss.mean() / rows, "constant": loss.sum() / (rows * TOKENS)}[mean])
        return parts


def check(mantissa, folder, algorithm, settings, policy):
    """The largest errors of a run as shares of their tolerances, the steps compared, and the largest share of clipped tokens."""
    (folder / "run.toml").write_text(config_text(algorithm, settings, policy))
    out = folder / "out"
    subprocess.run([mantissa, "rl", folder / "run.toml", "--out", out, "--overwrite", "--quiet", "--threads", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    model, reference = (LlamaForCausalLM.from_pretrained(folder / "model").double().eval() for _ in range(2))
    before = load_file(out / "start.safetensors")
    roundings = 9 * PRODUCTS * (96 if policy == "32-true" else 1)
    unit = ROUNDOFF[policy] * (roundings / 3)**0.5
    worst, compared, clipped, rollout = {"log_probs": 0, "loss": 0, "gradient": 0}, 0, 0, None
    for step in range(1, ROLLOUTS * EPOCHS + 1):
        after, responses, old_log_probs = read_state(out, step)
        head = load(model, before)
        if (step - 1) % EPOCHS == 0:
            assert lines[step - 1]["ratio_min"] == lines[step - 1]["ratio_max"] == 1, "the ratio of a rollout's first step"
            rollout = Rollout(algorithm, settings, responses, model, before, reference)
            # A logit is a sum of HIDDEN products, each with the errors of its operands.
            error = (torch.cat(rollout.old) - old_log_probs.double()).square().mean().sqrt().item()
            worst["log_probs"] = max(worst["log_probs"], error / unit)
            head = load(model, before)
        if lines[step - 1]["skipped"]:
            before = after
            continue
        parts = rollout.losses(model, head)
        names = [n for n, _ in model.named_parameters()] + (["value_head.weight"] if head is not None else [])
        weights = [p for _, p in model.named_parameters()] + ([head] if head is not None else [])
        each = [torch.cat([g.flatten() for g in torch.autograd.grad(part, weights, retain_graph=True)]) for part in parts]
        want = torch.stack(each).sum(0)
        flat = lambda of: torch.cat([of[n].double().flatten() for n in names])
        got = (flat(before) - flat(after)) / RATES[policy]
        stored = 2.0**-24 * (flat(before).norm() + flat(after).norm()) / RATES[policy]
        allowed = unit * torch.stack([g.norm() for g in each]).norm() + stored
        worst["gradient"] = max(worst["gradient"], ((got - want).norm() / allowed).item())
        loss = torch.stack(parts).detach()
        worst["loss"] = max(worst["loss"], abs(lines[step - 1]["loss"] - loss.sum().item()) / (unit * loss.norm().item() + 1e-8))
        assert abs(lines[step - 1]["clip_low_share"] + lines[step - 1]["clip_high_share"] - rollout.clipped) < 1e-8
        clipped = max(clipped, rollout.clipped)
        before = after
        compared += 1
    return worst, compared, clipped


def check_reward_model(mantissa, folder):
    """The largest error of the rewards of a reward model, as a share of the tolerance, and their number."""
    torch.manual_seed(2)
    LlamaForSequenceClassification(
        LlamaConfig(vocab_size=VOCABULARY, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6, num_labels=1,
                    num_key_value_heads=3, initializer_range=0.1, max_position_embeddings=64, pad_token_id=None)).save_pretrained(folder / "scores")
    policy, settings = "bf16-mixed", {"reward": "model", "reward_model": "scores", "reward_precision": "32-true"}
    (folder / "run.toml").write_text(config_text("grpo", settings, policy))
    out = folder / "out"
    subprocess.run([mantissa, "rl", folder / "run.toml", "--out", out, "--overwrite", "--quiet", "--threads", "1"],
                   check=True, stdout=subprocess.DEVNULL)
    model = AutoModelForSequenceClassification.from_pretrained(folder / "scores").double().eval()
    worst, count = 0, 0
    for step in range(1, ROLLOUTS * EPOCHS + 1):
        got = load_file(out / f"state/step-{step:08d}/state.safetensors")["task.rewards"]
        with torch.no_grad():
            want = torch.stack([model(torch.tensor([ids])).logits[0, 0] for ids, _, _ in read_state(out, step)[1]])
        # The score is a sum of 48 products of a normed state, behind 3 layers of 6 products and norms of sums of up to 80 terms.
        unit = 2.0**-24 * (18 * 80)**0.5 * model.score.weight.norm().item() * 48**0.5
        worst, count = max(worst, (got - want).abs().max().item() / unit), count + len(got)
    return worst, count


def main():
    arguments = argparse.ArgumentParser(usage="tools/check_rl.py MANTISSA")
    arguments.add_argument("mantissa", type=lambda p: pathlib.Path(p).resolve())
    mantissa = arguments.parse_args().mantissa
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    draw, failed = random.Random(1), False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FEED, num_hidden_layers=LAYERS,
                                     num_attention_heads=4, num_key_value_heads=2, initializer_range=0.1,
                                     max_position_embeddings=64)).save_pretrained(folder / "model")
        rows = [{"prompt": "".join(draw.choice("aeioustr ") for _ in range(draw.randint(3, 14)))} for _ in range(4 * PROMPTS)]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        print(f"{'':28} log-probs     loss  gradient   as shares of their tolerances")
        for policy in ROUNDOFF:
            for algorithm, settings in CASES.items():
                worst, compared, clipped = check(mantissa, folder, algorithm, settings, policy)
                bad = compared < EPOCHS * ROLLOUTS / 2 or not max(worst.values()) <= 1 or (policy == "32-true" and clipped == 0)
                failed = failed or bad
                print(f"{policy:10} {algorithm:20} {worst['log_probs']:6.2f} {worst['loss']:8.2f} {worst['gradient']:9.2f}"
                      f"   {compared} steps, up to {100 * clipped:.0f} % clipped{'   FAILED' if bad else ''}", flush=True)
        worst, count = check_reward_model(mantissa, folder)
        failed = failed or not worst <= 1 or count == 0
        print(f"{'32-true':10} {'reward model':20} {worst:6.2f}   {count} rewards{'   FAILED' if not worst <= 1 else ''}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
