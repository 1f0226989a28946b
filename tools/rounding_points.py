#!/usr/bin/env python3
"""Emulates the rounding points of bf16-mixed (docs/numerics.md, "Rounding points belong to the graph"): a Llama's forward and
hand-written backward pass in one wide arithmetic, with an explicit rounding of every value that bf16-mixed rounds.

In f64 arithmetic the result is that of a faithful f32 implementation without its summation errors. In f32 arithmetic it is one such
implementation. The distance between the two is the tolerance for a third implementation.

    rounding_points.py MODEL --tokens T.safetensors --out OUT.safetensors [--arithmetic f64] [--omit POINT]
"""
import argparse
import math

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import torch_llama

KEY_BLOCK = 512  # keys between two updates of the running maximum, which determines the rounding of probabilities

# Every rounding, by name. One can be omitted to check that a comparison detects it.
POINTS = {
    "weights": "linear weights, read by matmuls as bf16 copies of the f32 masters",
    "norm": "output of RMSNorm",
    "linear": "output of every linear layer except the head",
    "rope": "q and k after the rotation (before it they are linear outputs)",
    "probabilities": "exp(score - running maximum) before PV; the denominator sums unrounded values",
    "attention": "output of attention",
    "swiglu": "silu(gate) * up",
    "dlogits": "gradient of the logits as a matmul operand",
    "dp": "recomputed probabilities as an operand of dV",
    "ds": "gradient of the scores as an operand of dQ and dK",
    "gradient": "gradient of every bf16 value, after summing its uses",
}


class Rounder:
    def __init__(self, omit=None):
        if omit not in (None, "all", *POINTS):
            raise SystemExit(f"unknown rounding point {omit}; points: all, {', '.join(POINTS)}")
        self.omit = omit

    def __call__(self, point, x):
        """Rounds x to nearest even in bf16, from its f32 value; keeps the dtype of x."""
        assert point in POINTS
        return x if self.omit in (point, "all") else x.float().bfloat16().to(x.dtype)


def norm(x, gain, eps):
    """Returns the unrounded RMSNorm, and the reciprocal root that the backward pass reuses."""
    rstd = 1 / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * rstd * gain, rstd


def norm_backward(dy, x, gain, rstd):
    """Returns the gradients of the input and the gain."""
    normed, g = x * rstd, dy * gain
    return rstd * (g - normed * (g * normed).mean(-1, keepdim=True)), (dy * normed).sum((0, 1))


def causal_scores(q, k, first=0):
    """Returns the scores of all queries with the keys from `first` on; -inf for future keys."""
    scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
    key = torch.arange(first, first + k.shape[-2])
    return scores.masked_fill(key[None, :] > torch.arange(q.shape[-2])[:, None], -math.inf)


def attention(r, q, k, v):
    """Returns the rounded output [B, heads, T, head_dim] and every query's log-sum-exp. k and v are repeated for their groups."""
    top, total, out = torch.full_like(q[..., :1], -math.inf), 0, 0
    for first in range(0, k.shape[-2], KEY_BLOCK):
        block = slice(first, first + KEY_BLOCK)
        scores = causal_scores(q, k[..., block, :], first)
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        p, old = torch.exp(scores - new), torch.exp(top - new)
        total = total * old + p.sum(-1, keepdim=True)
        out = out * old + r("probabilities", p) @ v[..., block, :]
        top = new
    return r("attention", out / total), top + torch.log(total)


def attention_backward(r, dout, out, lse, q, k, v, group):
    """Returns the gradients of q, k and v. Those of k and v are summed over each group of query heads before rounding."""
    p = torch.exp(causal_scores(q, k) - lse)
    d = (dout * out).sum(-1, keepdim=True)
    ds = r("ds", p * (dout @ v.transpose(-1, -2) - d) * (1 / math.sqrt(q.shape[-1])))

    def grouped(x):
        return x.unflatten(1, (-1, group)).sum(2)

    dq, dk = ds @ k, grouped(ds.transpose(-1, -2) @ q)
    dv = grouped(r("dp", p).transpose(-1, -2) @ dout)
    return r("gradient", dq), r("gradient", dk), r("gradient", dv)


class Emulation:
    def __init__(self, config, masters, length, omit=None):
        """`masters`: every weight, with f32 values in the dtype of the arithmetic."""
        self.config, self.masters, self.r = config, masters, Rounder(omit)
        self.matrices = {name: self.r("weights", w) for name, w in masters.items() if w.ndim == 2}
        dtype = masters["model.norm.weight"].dtype
        self.cos, self.sin = torch_llama.rope_tables(config, length, dtype, as_f32=True)
        self.head = "model.embed_tokens.weight" if config.tied else "lm_head.weight"
        self.grads = {name: torch.zeros_like(w) for name, w in masters.items()}

    def split(self, x):  # [B, T, heads · head_dim] -> [B, heads, T, head_dim]
        return x.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def join(self, x):
        return x.transpose(1, 2).flatten(2)

    def linear(self, x, name):
        return self.r("linear", F.linear(x, self.matrices[name + ".weight"]))

    def linear_gradients(self, uses, x):
        """Returns the gradient of x from its `uses`, pairs of a linear layer's name and its output's gradient: summed, then rounded
        once. Stores the layers' unrounded weight gradients in self.grads."""
        total = 0
        for name, dy in uses:
            self.grads[name + ".weight"] += dy.flatten(0, 1).T @ x.flatten(0, 1)
            total = total + dy @ self.matrices[name + ".weight"]
        return self.r("gradient", total)

    def forward(self, ids):
        config, r = self.config, self.r
        group = config.heads // config.kv_heads
        x, self.saved = F.embedding(ids, self.masters["model.embed_tokens.weight"]), []
        for layer in range(config.layers):
            scope = f"model.layers.{layer}."
            s = {"x": x}
            y, s["rstd"] = norm(x, self.masters[scope + "input_layernorm.weight"], config.eps)
            s["y"] = y = r("norm", y)
            q, k, v = (self.split(self.linear(y, scope + f"self_attn.{p}_proj")) for p in "qkv")
            s["q"] = r("rope", torch_llama.rotate(q, self.cos, self.sin))
            s["k"] = r("rope", torch_llama.rotate(k, self.cos, self.sin)).repeat_interleave(group, 1)
            s["v"] = v.repeat_interleave(group, 1)
            s["o"], s["lse"] = attention(r, s["q"], s["k"], s["v"])
            x = s["mid"] = x + self.linear(self.join(s["o"]), scope + "self_attn.o_proj")
            y, s["mid_rstd"] = norm(x, self.masters[scope + "post_attention_layernorm.weight"], config.eps)
            s["mid_y"] = y = r("norm", y)
            s["gate"], s["up"] = self.linear(y, scope + "mlp.gate_proj"), self.linear(y, scope + "mlp.up_proj")
            s["gated"] = r("swiglu", s["gate"] * torch.sigmoid(s["gate"]) * s["up"])
            x = x + self.linear(s["gated"], scope + "mlp.down_proj")
            self.saved.append(s)
        y, self.rstd = norm(x, self.masters["model.norm.weight"], config.eps)
        self.x, self.y = x, r("norm", y)
        return F.linear(self.y, self.matrices[self.head])

    def backward(self, ids, dlogits):
        config, r, grads = self.config, self.r, self.grads
        group = config.heads // config.kv_heads
        dlogits = r("dlogits", dlogits)
        grads[self.head] += dlogits.flatten(0, 1).T @ self.y.flatten(0, 1)
        dy = r("gradient", dlogits @ self.matrices[self.head])
        dx, grads["model.norm.weight"] = norm_backward(dy, self.x, self.masters["model.norm.weight"], self.rstd)
        for layer in reversed(range(config.layers)):
            scope, s = f"model.layers.{layer}.", self.saved[layer]
            dgated = self.linear_gradients([(scope + "mlp.down_proj", r("gradient", dx))], s["gated"])
            sigmoid = torch.sigmoid(s["gate"])
            dgate = r("gradient", dgated * s["up"] * (sigmoid * (1 + s["gate"] * (1 - sigmoid))))
            dup = r("gradient", dgated * (s["gate"] * sigmoid))
            dy = self.linear_gradients([(scope + "mlp.gate_proj", dgate), (scope + "mlp.up_proj", dup)], s["mid_y"])
            name = scope + "post_attention_layernorm.weight"
            through, grads[name] = norm_backward(dy, s["mid"], self.masters[name], s["mid_rstd"])
            dx = dx + through
            do = self.linear_gradients([(scope + "self_attn.o_proj", r("gradient", dx))], self.join(s["o"]))
            dq, dk, dv = attention_backward(r, self.split(do), s["o"], s["lse"], s["q"], s["k"], s["v"], group)
            dq = r("gradient", torch_llama.rotate(dq, self.cos, -self.sin))
            dk = r("gradient", torch_llama.rotate(dk, self.cos, -self.sin))
            dy = self.linear_gradients([(scope + f"self_attn.{p}_proj", self.join(d)) for p, d in zip("qkv", (dq, dk, dv))],
                                       s["y"])
            name = scope + "input_layernorm.weight"
            through, grads[name] = norm_backward(dy, s["x"], self.masters[name], s["rstd"])
            dx = dx + through
        grads["model.embed_tokens.weight"].index_add_(0, ids.flatten(), dx.flatten(0, 1))


def trace(directory, ids, labels, dtype, omit=None):
    """Like torch_llama.trace, with the rounding points of bf16-mixed and arithmetic in `dtype`."""
    config = torch_llama.Config.read(directory)
    model = Emulation(config, torch_llama.read_weights(directory, dtype), ids.shape[1], omit)
    logits = model.forward(ids)
    log_probs = logits[:, :-1].log_softmax(-1)
    counted = (labels[:, 1:] != torch_llama.IGNORED).to(dtype)
    tokens = counted.sum()
    target = labels[:, 1:].clamp(min=0)
    loss = -(log_probs.gather(-1, target[..., None])[..., 0] * counted).sum() / tokens
    dlogits = torch.zeros_like(logits)
    dlogits[:, :-1] = (log_probs.exp() - F.one_hot(target, config.vocabulary)) * (counted / tokens)[..., None]
    model.backward(ids, dlogits)
    out = {"logits": logits, "log_probs": log_probs.gather(-1, ids[:, 1:, None])[..., 0], "loss": loss[None]}
    return {name: t.contiguous() for name, t in (out | {"grad." + name: g for name, g in model.grads.items()}).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory")
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--arithmetic", choices=("f32", "f64"), default="f32")
    parser.add_argument("--omit", choices=POINTS, help="omit one rounding point, to check that it matters")
    args = parser.parse_args()
    ids, labels = torch_llama.read_tokens(args.tokens)
    save_file(trace(args.model, ids, labels, torch_llama.DTYPES[args.arithmetic], args.omit), args.out)


if __name__ == "__main__":
    main()
