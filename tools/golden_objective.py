#!/usr/bin/env python3
"""Post-training objectives in PyTorch, in double by autograd: golden cases, and a check of `mantissa objective`.

Needs torch, numpy and safetensors.

  tools/golden_objective.py                             writes tests/golden/objective/*.safetensors
  tools/golden_objective.py --only ppo-1                writes only that file of them
  tools/golden_objective.py --check build/mantissa      compares the program with hundreds of random cases

The formulas are those of docs/numerics.md, "Objectives of post-training", written on whole tensors and independently of the
C++ code. A golden file holds the input tensors of a case, the expected output as "expected.NAME", and the objective and its
settings as metadata.
"""
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from golden import GOLDEN, parser

DEFAULTS = {
    "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0, "gamma": 1.0, "lambda": 1.0, "whiten": "auto", "value_clip": 0.5,
    "value_coef": 0.5, "entropy_coef": 0.0, "kl": "k3", "kl_in": "loss", "kl_coef": 0.001, "loss_mean": "token",
    "max_new_tokens": 256, "importance": "token", "importance_cap": 0.0}
DPO_DEFAULTS = {"beta": 0.1, "label_smoothing": 0.0, "loss": "sigmoid", "nll_coef": 0.0}
POLICY = ("ppo", "grpo", "dr-grpo", "reinforce++", "reinforce++-baseline", "rloo")
OBJECTIVES, CASES = POLICY + ("dpo", "reward"), 4
GROUPED = ("grpo", "dr-grpo", "reinforce++-baseline", "rloo")


# ---- the reference -------------------------------------------------------------------------------------------------

def kept(x, m):
    """The tensor in double, 0 where the mask is 0."""
    return torch.where(m, x.double(), torch.zeros((), dtype=torch.float64))


def divergence(kind, p, q):
    d = p - q
    if kind == "k1":
        return d
    if kind == "k2":
        return d.square() / 2
    return torch.clamp(torch.exp(-d) + d - 1, -10, 10)


def token_rewards(x, m, s):
    r = x["rewards"].double()
    if r.dim() == 1:
        t = torch.arange(m.shape[1])
        last = torch.where(m, t, -1).max(1).values
        r = torch.where((t[None] == last[:, None]) & m, r[:, None], 0.0)
    r = kept(r, m)
    if s["kl"] != "none" and s["kl_in"] == "reward" and s["kl_coef"] > 0:
        r = r - s["kl_coef"] * kept(divergence(s["kl"], kept(x["old_log_probs"], m), kept(x["ref_log_probs"], m)), m)
    return r


def group_advantages(name, r, m, groups):
    a = torch.zeros_like(r)
    alive = m.any(1)
    total = r.sum(1)
    for g in set(groups.tolist()):
        rows = (groups == g) & alive
        n = int(rows.sum())
        if n < 2:
            continue
        R = total[rows]
        if name == "rloo":
            value = R - (R.sum() - R) / (n - 1)
        elif name == "grpo":
            value = (R - R.mean()) / (R.std(unbiased=True) + 1e-6)
        else:
            value = R - R.mean()
        a[rows] = value[:, None].expand(n, r.shape[1])
    return kept(a, m)


def gae(r, m, v, gamma, lam):
    """On the tokens that count of each row, gathered into a sequence."""
    a, g = torch.zeros_like(r), torch.zeros_like(r)
    for i in range(r.shape[0]):
        at = m[i].nonzero().flatten()
        values = torch.cat([v[i, at], torch.zeros(1, dtype=torch.float64)])
        delta = r[i, at] + gamma * values[1:] - values[:-1]
        n = len(at)
        for k in range(n):
            powers = (gamma * lam) ** torch.arange(n - k, dtype=torch.float64)
            a[i, at[k]] = (powers * delta[k:]).sum()
        g[i, at] = a[i, at] + v[i, at]
    return a, g


def reverse_returns(r, m, gamma):
    g = torch.zeros_like(r)
    running = torch.zeros(r.shape[0], dtype=torch.float64)
    for t in reversed(range(r.shape[1])):
        running = (r[:, t] + gamma * running) * m[:, t]
        g[:, t] = running
    return g


def whitened(a, m):
    x = a[m]
    var = x.var(unbiased=True) if len(x) > 1 else torch.zeros((), dtype=torch.float64)
    return kept((a - x.mean()) * torch.rsqrt(var + 1e-8), m)


def advantages(name, x, m, s):
    r = token_rewards(x, m, s)
    if name == "ppo":
        a, g = gae(r, m, kept(x["old_values"], m), s["gamma"], s["lambda"])
    elif name == "reinforce++":
        a = g = reverse_returns(r, m, s["gamma"])
    else:
        a = g = group_advantages(name, r, m, x["groups"])
    auto = name in ("ppo", "reinforce++", "reinforce++-baseline")
    return (whitened(a, m) if s["whiten"] == "batch" or (s["whiten"] == "auto" and auto) else a), g


def mean(x, m, s):
    x = kept(x, m)
    if s["loss_mean"] == "token":
        return x.sum() / m.sum()
    alive = m.any(1)
    if s["loss_mean"] == "sequence":
        return (x.sum(1)[alive] / m.sum(1)[alive]).mean()
    return x.sum() / (int(alive.sum()) * s["max_new_tokens"])


def policy(name, x, s):
    m = x["mask"].double() != 0
    out = {}
    out["advantages"], out["returns"] = a, g = advantages(name, x, m, s)
    p = kept(x["log_probs"], m).requires_grad_()
    old = kept(x["old_log_probs"], m)
    ratio = torch.exp(p - old)
    surrogate = torch.minimum(ratio * a, torch.clamp(ratio, 1 - s["clip_low"], 1 + s["clip_high"]) * a)
    if s["dual_clip"] > 0:
        surrogate = torch.where(a < 0, torch.maximum(surrogate, s["dual_clip"] * a), surrogate)
    if s["importance_cap"] > 0:
        difference = old - kept(x["rollout_log_probs"], m)
        if s["importance"] == "sequence":
            difference = difference.sum(1, keepdim=True)
        surrogate = surrogate * torch.clamp(torch.exp(difference), max=s["importance_cap"])
    loss = mean(-surrogate, m, s)
    if s["kl"] != "none" and "ref_log_probs" in x:
        ref = kept(x["ref_log_probs"], m)
        if s["kl_in"] == "loss" and s["kl_coef"] > 0:
            loss = loss + s["kl_coef"] * mean(divergence(s["kl"], p, ref), m, s)
        out["kl"] = kept(divergence(s["kl"], old if s["kl_in"] == "reward" else p, ref), m).detach()
    inputs = {"log_probs": p}
    if name == "ppo":
        v, v_old = kept(x["values"], m).requires_grad_(), kept(x["old_values"], m)
        square = (v - g).square()
        if s["value_clip"] > 0:
            limited = v_old + torch.clamp(v - v_old, -s["value_clip"], s["value_clip"])
            square = torch.maximum(square, (limited - g).square())
        loss = loss + s["value_coef"] * 0.5 * mean(square, m, s)
        inputs["values"] = v
    if s["entropy_coef"] > 0:
        inputs["entropy"] = kept(x["entropy"], m).requires_grad_()
        loss = loss - s["entropy_coef"] * mean(inputs["entropy"], m, s)
    return loss, inputs, out


def dpo(x, s):
    m = x["mask"].double() != 0
    p, q = kept(x["log_probs"], m).requires_grad_(), kept(x["ref_log_probs"], m)
    total = kept(p, m).sum(1)
    reward = total - q.sum(1)
    delta = reward[0::2] - reward[1::2]
    if s["loss"] == "ipo":
        each = (delta - 1 / (2 * s["beta"])) ** 2
    else:
        up, down = torch.nn.functional.logsigmoid(s["beta"] * delta), torch.nn.functional.logsigmoid(-s["beta"] * delta)
        each = -(1 - s["label_smoothing"]) * up - s["label_smoothing"] * down
    loss = each.mean()
    if s["nll_coef"] > 0:
        loss = loss + s["nll_coef"] * -(total[0::2] / m.sum(1)[0::2]).mean()
    return loss, {"log_probs": p}, {}


def reward(x):
    scores = x["scores"].double().requires_grad_()
    logit = scores[0::2] - scores[1::2] - x.get("margin", torch.zeros(1)).double()
    return -torch.nn.functional.logsigmoid(logit).mean(), {"scores": scores}, {}


def expected(name, x, settings):
    """The output tensors of a case, in double."""
    if name == "dpo":
        loss, inputs, out = dpo(x, DPO_DEFAULTS | settings)
    elif name == "reward":
        loss, inputs, out = reward(x)
    else:
        loss, inputs, out = policy(name, x, DEFAULTS | settings)
    grads = torch.autograd.grad(loss, list(inputs.values()))
    out = dict(out, **{f"grad.{k}": g for k, g in zip(inputs, grads)})
    out["loss"] = loss.detach().reshape(1)
    return out


# ---- random cases --------------------------------------------------------------------------------------------------

def garbage(rng, x, m):
    """Values that must not matter, where the mask is 0."""
    bad = torch.tensor(rng.choice([math.nan, math.inf, -math.inf, 3e38, 0.0], size=tuple(x.shape)), dtype=x.dtype)
    return torch.where(m, x, bad)


def random_mask(rng, n, t):
    lengths = torch.tensor(rng.integers(1, t + 1, n))
    m = torch.arange(t)[None] < lengths[:, None]
    kind = rng.integers(4)
    if kind == 1:  # prompts on the left
        m = m.flip(1)
    elif kind == 2:  # turns of others in between
        m &= torch.tensor(rng.random((n, t)) < 0.7)
    if n > 2 and rng.random() < 0.25:
        m[rng.integers(n)] = False
    if not m.any():
        m[0, 0] = True
    return m


def normal(rng, *shape, scale=1.0):
    return torch.tensor(rng.normal(size=shape) * scale, dtype=torch.float32)


def random_settings(rng, name):
    pick = lambda *choices: choices[rng.integers(len(choices))]
    s = {}
    if rng.random() < 0.6:
        s |= {"clip_low": pick(0.1, 0.2, 0.3), "clip_high": pick(0.1, 0.2, 0.28), "dual_clip": pick(0.0, 1.5, 3.0)}
    if rng.random() < 0.5:
        s |= {"loss_mean": pick("token", "sequence", "constant"), "max_new_tokens": int(rng.integers(4, 40))}
    if rng.random() < 0.7:
        s |= {"kl": pick("none", "k1", "k2", "k3"), "kl_in": pick("loss", "reward"), "kl_coef": pick(0.0, 0.01, 0.3)}
    if rng.random() < 0.4:
        s |= {"importance": pick("token", "sequence"), "importance_cap": pick(0.5, 1.5, 4.0)}
    if rng.random() < 0.3:
        s["entropy_coef"] = pick(0.01, 0.5)
    if rng.random() < 0.3:
        s["whiten"] = pick("auto", "batch", "none")
    if rng.random() < 0.5:
        s |= {"gamma": pick(1.0, 0.9, 0.0), "lambda": pick(1.0, 0.8, 0.0)}
    if name == "ppo" and rng.random() < 0.6:
        s |= {"value_clip": pick(0.0, 0.2, 0.5), "value_coef": pick(0.0, 0.1, 1.0)}
    return s


def random_policy_case(rng, name):
    n, t = int(rng.integers(1, 13)), int(rng.integers(1, 17))
    s = random_settings(rng, name)
    full = DEFAULTS | s
    m = random_mask(rng, n, t)
    old = -normal(rng, n, t).abs() * 2
    spread = rng.choice([0.0, 0.1, 0.5, 2.0])
    x = {"log_probs": old + normal(rng, n, t, scale=spread), "old_log_probs": old}
    if full["kl"] != "none" and (full["kl_coef"] > 0 or rng.random() < 0.5):
        x["ref_log_probs"] = old + normal(rng, n, t, scale=rng.choice([0.1, 1.0, 3.0]))
    if full["importance_cap"] > 0:
        x["rollout_log_probs"] = old + normal(rng, n, t, scale=rng.choice([0.05, 0.5]))
    if full["entropy_coef"] > 0:
        x["entropy"] = normal(rng, n, t).abs()
    if name == "ppo":
        x["old_values"] = normal(rng, n, t)
        x["values"] = x["old_values"] + normal(rng, n, t, scale=rng.choice([0.1, 1.0]))
    per_token = rng.random() < 0.4
    rewards = normal(rng, n, t) if per_token else normal(rng, n) if rng.random() < 0.5 else torch.tensor(
        rng.choice([-3.0, -1.0, -0.5, 3.0], n), dtype=torch.float32)
    if per_token:
        x["rewards"] = rewards
    x = {k: garbage(rng, v, m) for k, v in x.items()}
    if not per_token:
        x["rewards"] = garbage(rng, rewards, m.any(1))
    if name in GROUPED:
        groups = rng.integers(-2, max(1, n // 3), n)
        x["groups"] = torch.tensor(groups, dtype=torch.int32 if rng.random() < 0.5 else torch.int64)
    x["mask"] = m.to([torch.float32, torch.bool, torch.int64, torch.uint8][rng.integers(4)])
    return s, x


def random_dpo_case(rng):
    n, t = 2 * int(rng.integers(1, 6)), int(rng.integers(1, 17))
    s = {"beta": float(rng.choice([0.05, 0.1, 0.5]))}
    if rng.random() < 0.3:
        s["loss"] = "ipo"
    elif rng.random() < 0.4:
        s["label_smoothing"] = float(rng.choice([0.1, 0.5]))
    m = random_mask(rng, n, t)
    if rng.random() < 0.4:
        s["nll_coef"] = float(rng.choice([0.2, 1.0]))
        m[0::2, 0] = True
    p = -normal(rng, n, t).abs() * 3
    x = {"log_probs": p, "ref_log_probs": p + normal(rng, n, t, scale=rng.choice([0.1, 3.0]))}
    x = {k: garbage(rng, v, m) for k, v in x.items()}
    x["mask"] = m.float()
    return s, x


def random_reward_case(rng):
    n = 2 * int(rng.integers(1, 9))
    x = {"scores": normal(rng, n, scale=rng.choice([0.1, 1.0, 30.0]))}
    if rng.random() < 0.5:
        x["margin"] = normal(rng, n // 2).abs()
    return {}, x


def random_case(rng, name):
    if name == "dpo":
        return random_dpo_case(rng)
    return random_reward_case(rng) if name == "reward" else random_policy_case(rng, name)


# ---- files and the program -----------------------------------------------------------------------------------------

def overrides(name, settings):
    return [f"{'dpo' if name == 'dpo' else 'rl'}.{k}={v}" for k, v in settings.items()]


def apart(tensors):
    """The tensors, each with memory of its own, as a file needs."""
    return {k: v.contiguous().clone() for k, v in tensors.items()}


def golden_settings(name, i, settings):
    """Settings of the golden case i: the defaults first, then some that every objective must have, then those drawn."""
    if i == 0:
        return {}
    if name in POLICY:
        return settings | [{"loss_mean": "constant", "max_new_tokens": 20}, {"loss_mean": "sequence", "dual_clip": 1.5}, {}][i - 1]
    return settings | ({"loss": "ipo"} if name == "dpo" and i == 1 else {})


def write_golden(folder, seed, only):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for name in OBJECTIVES:
        for i in range(CASES):
            x = {}
            while len(next(iter(x.values()), [])) < 6:  # rows
                drawn, x = random_case(rng, name)
            if only not in (None, f"{name}-{i}"):
                continue
            settings = golden_settings(name, i, drawn)
            if name in POLICY and (DEFAULTS | settings)["kl"] != "none":
                x.setdefault("ref_log_probs", x["old_log_probs"] - 0.25)
            tensors = x | {f"expected.{k}": v for k, v in expected(name, x, settings).items()}
            save_file(apart(tensors), folder / f"{name}-{i}.safetensors",
                      {"case": json.dumps({"objective": name, "overrides": overrides(name, settings)})})
    print(f"wrote {folder}")


def worst_error(got, want):
    """The largest error as a multiple of the bound: half a unit in the last place of f32, and what sums in double of this
    length lose, relative to the largest element."""
    want = want.double()
    bound = 2.0**-24 * want.abs() * 1.000001 + 1e-11 * max(1.0, float(want.abs().max()))
    return float(((got.double() - want).abs() / bound).max())


def check(binary, cases, seed):
    rng = np.random.default_rng(seed)
    worst, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder) / "in.safetensors", Path(folder) / "out.safetensors"
        for i in range(cases):
            name = OBJECTIVES[i % len(OBJECTIVES)]
            settings, x = random_case(rng, name)
            save_file(apart(x), source)
            arguments = [a for o in overrides(name, settings) for a in ("--set", o)]
            run = subprocess.run([binary, "objective", name, "--in", source, "--out", result, "--json", *arguments],
                                 capture_output=True, text=True)
            want = expected(name, x, settings)
            wrong = run.stderr if run.returncode else ""
            got = {} if run.returncode else load_file(result)
            if not wrong and set(got) != set(want):
                wrong = f"tensors {sorted(got)} instead of {sorted(want)}"
            for key in sorted(want) if not wrong else []:
                if got[key].dtype != torch.float32 or got[key].shape != want[key].shape or not got[key].isfinite().all():
                    wrong += f"{key}: {got[key].dtype} {list(got[key].shape)}; "
                    continue
                error = worst_error(got[key], want[key])
                worst[key] = max(worst.get(key, 0), error)
                if error > 1:
                    wrong += f"{key}: {error:.3g} × the bound; "
            if not wrong and abs(json.loads(run.stdout)["loss"] - float(want["loss"])) > 1e-11 * max(1, abs(want["loss"])):
                wrong = "the loss on standard output differs"
            if wrong:
                failed += 1
                print(f"case {i}: {name} {' '.join(arguments)}: {wrong}")
    print(f"{cases - failed} of {cases} cases agree (seed {seed}); largest errors as multiples of the bound:")
    print("  " + ", ".join(f"{k} {v:.3f}" for k, v in sorted(worst.items())))
    return failed == 0


def main():
    made = parser(__doc__, [f"{name}-{i}" for name in OBJECTIVES for i in range(CASES)])
    made.add_argument("--check", metavar="BINARY", help="compare this program with random cases")
    made.add_argument("--cases", type=int, default=400)
    made.add_argument("--seed", type=int, default=1)
    args = made.parse_args()
    if args.check:
        sys.exit(0 if check(args.check, args.cases, args.seed) else 1)
    write_golden(GOLDEN / "objective", args.seed, args.only)


if __name__ == "__main__":
    main()
