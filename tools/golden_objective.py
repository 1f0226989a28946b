#!/usr/bin/env python3
"""Post-training objectives in PyTorch, in double by autograd: golden cases, and a check of `mantissa objective`.

Needs torch, numpy and safetensors.

  tools/golden_objective.py                             writes tests/golden/objective/*.safetensors
  tools/golden_objective.py --only ppo-1                writes only that file of them
  tools/golden_objective.py --check build/mantissa      compares the program with hundreds of random cases

The formulas (tools/objective_formulas.py) are written independently of the C++ code. A golden file holds the input tensors of
a case, the expected output as "expected.NAME", and the objective and its settings as metadata.
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
from objective_formulas import DEFAULTS, GROUPED, POLICY, expected

OBJECTIVES, CASES = POLICY + ("dpo", "reward"), 4


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
