"""The post-training objectives in PyTorch, in double by autograd: the formulas of docs/numerics.md, "Objectives of
post-training", on whole tensors, for tools/golden_objective.py.
"""
import torch

DEFAULTS = {
    "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0, "gamma": 1.0, "lambda": 1.0, "whiten": "auto", "value_clip": 0.5,
    "value_coef": 0.5, "entropy_coef": 0.0, "kl": "k3", "kl_in": "loss", "kl_coef": 0.001, "loss_mean": "token",
    "max_new_tokens": 256, "importance": "token", "importance_cap": 0.0}
DPO_DEFAULTS = {"beta": 0.1, "label_smoothing": 0.0, "loss": "sigmoid", "nll_coef": 0.0}
POLICY = ("ppo", "grpo", "dr-grpo", "reinforce++", "reinforce++-baseline", "rloo")
GROUPED = ("grpo", "dr-grpo", "reinforce++-baseline", "rloo")


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
