#!/usr/bin/env python3
"""An independent Llama in plain PyTorch for golden values, without a framework's model code or internal casts.

    torch_llama.py trace MODEL --tokens T.safetensors --out OUT.safetensors --dtype f64 [--rope-f32]
    torch_llama.py train CONFIG.toml --dtype f64          one JSON line per step: step, loss, grad_norm, lr

Dtypes: f64 and f32 compute everything in that format. bf16-autocast and f16-autocast use f32 weights under
torch.autocast("cpu"), the latter with the loss scale of [precision.loss_scale] (2^16 in a trace). A trace has the
tensors of `mantissa trace --grads`; a training run follows the same config.
"""
import argparse
import contextlib
import dataclasses
import json
import math
import pathlib
import sys
import tomllib

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16-autocast": torch.float32, "f16-autocast": torch.float32}
AUTOCAST = {"bf16-autocast": torch.bfloat16, "f16-autocast": torch.float16}
IGNORED = -100


@dataclasses.dataclass(frozen=True)
class Config:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    eps: float
    theta: float
    tied: bool

    @staticmethod
    def read(directory):
        c = json.loads((pathlib.Path(directory) / "config.json").read_text())
        rope = c.get("rope_parameters") or {}
        return Config(hidden=c["hidden_size"], layers=c["num_hidden_layers"], heads=c["num_attention_heads"],
                      kv_heads=c.get("num_key_value_heads") or c["num_attention_heads"],
                      head_dim=c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"],
                      intermediate=c["intermediate_size"], vocabulary=c["vocab_size"], eps=c["rms_norm_eps"],
                      theta=float(rope.get("rope_theta") or c.get("rope_theta") or 10000.0),
                      tied=bool(c.get("tie_word_embeddings", False)))


def read_weights(directory, dtype):
    """Returns every weight by name, converted to `dtype`; a tied head is not a weight."""
    weights = {}
    for file in sorted(pathlib.Path(directory).glob("model*.safetensors")):
        weights |= {name: w.to(dtype) for name, w in load_file(file).items()}
    if Config.read(directory).tied:
        weights.pop("lm_head.weight", None)
    return weights


def head_weight(config, weights):
    return weights["model.embed_tokens.weight" if config.tied else "lm_head.weight"]


def rope_tables(config, positions, dtype, as_f32=False):
    """Returns cos and sin, [positions, head_dim / 2]. With `as_f32` frequency and angle are f32 values; cos and sin of that angle
    are computed in f64, rounded once to f32 and widened to `dtype`. These are the tables of f32 policies."""
    form = torch.float32 if as_f32 else dtype
    exponent = torch.arange(0, config.head_dim, 2).to(form) / config.head_dim
    angle = torch.arange(positions).to(form)[:, None] * (1.0 / config.theta**exponent)[None, :]
    if as_f32:
        return angle.double().cos().float().to(dtype), angle.double().sin().float().to(dtype)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Rotates the two halves of x [B, heads, T, head_dim] against each other."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rmsnorm(x, gain, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


def attention(q, k, v):
    """Causal softmax attention of [B, heads, T, head_dim]: explicit in f64, PyTorch's own kernel otherwise."""
    if q.dtype != torch.float64:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -math.inf).softmax(-1) @ v


def forward(config, weights, ids, tables):
    """Returns the logits [B, T, vocabulary] of ids [B, T]."""
    batch, length = ids.shape
    cos, sin = tables

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"])

    def heads(x, count):
        return x.view(batch, length, count, config.head_dim).transpose(1, 2)

    x = F.embedding(ids, weights["model.embed_tokens.weight"])
    for layer in range(config.layers):
        scope = f"model.layers.{layer}."
        y = rmsnorm(x, weights[scope + "input_layernorm.weight"], config.eps)
        q = rotate(heads(linear(y, scope + "self_attn.q_proj"), config.heads), cos, sin)
        k = rotate(heads(linear(y, scope + "self_attn.k_proj"), config.kv_heads), cos, sin)
        v = heads(linear(y, scope + "self_attn.v_proj"), config.kv_heads)
        group = config.heads // config.kv_heads
        o = attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1))
        x = x + linear(o.transpose(1, 2).reshape(batch, length, -1), scope + "self_attn.o_proj")
        y = rmsnorm(x, weights[scope + "post_attention_layernorm.weight"], config.eps)
        gated = F.silu(linear(y, scope + "mlp.gate_proj")) * linear(y, scope + "mlp.up_proj")
        x = x + linear(gated, scope + "mlp.down_proj")
    return F.linear(rmsnorm(x, weights["model.norm.weight"], config.eps), head_weight(config, weights))


def autocast(dtype_name):
    if dtype_name in AUTOCAST:
        return torch.autocast("cpu", AUTOCAST[dtype_name])
    return contextlib.nullcontext()


class LossScale:
    """DeepSpeed's rule, from its keys in [precision.loss_scale]; constantly 1 if `settings` is None."""

    def __init__(self, settings):
        self.moves = settings is not None
        s = {"initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1.0} | (settings or {})
        self.scale = 2.0 ** s["initial_scale_power"] if self.moves else 1.0
        self.window, self.hysteresis, self.minimum = s["loss_scale_window"], s["hysteresis"], s["min_loss_scale"]
        self.left, self.step, self.last = self.hysteresis, 0, -1

    def update(self, overflow):
        if not self.moves:
            return
        clean = self.step - self.last - 1
        if overflow and self.left == 1:
            self.scale = max(self.scale / 2, self.minimum)
        elif overflow:
            self.left -= 1
        elif clean > 0 and clean % self.window == 0:
            self.scale, self.left = self.scale * 2, self.hysteresis
        if overflow:
            self.last = self.step
        self.step += 1


def read_tokens(path):
    """Returns input_ids [B, T] and the labels of trace, which are aligned with them and shifted inside the model."""
    tensors = load_file(path)
    ids = tensors["input_ids"].long()
    return ids, tensors.get("labels", ids).long()


def trace(directory, ids, labels, dtype_name, rope_f32=False):
    """Returns the tensors of one forward and backward pass, named as in `mantissa trace --grads`."""
    config, dtype = Config.read(directory), DTYPES[dtype_name]
    weights = {name: w.requires_grad_() for name, w in read_weights(directory, dtype).items()}
    with autocast(dtype_name):
        logits = forward(config, weights, ids, rope_tables(config, ids.shape[1], dtype, rope_f32))
    logits = logits.to(dtype)
    log_probs = logits[:, :-1].log_softmax(-1)
    loss = F.nll_loss(log_probs.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
    scale = 65536.0 if dtype_name == "f16-autocast" else 1.0
    (loss * scale).backward()
    out = {"logits": logits, "log_probs": log_probs.gather(-1, ids[:, 1:, None])[..., 0], "loss": loss[None]}
    out |= {"grad." + name: w.grad / scale for name, w in weights.items()}
    return {name: t.detach().contiguous() for name, t in out.items()}


class TokenFile:
    """Raw little-endian ids read in order: sequence j is ids [jT, jT + T], step s takes the next `batch` sequences, wrapping."""

    def __init__(self, path, vocabulary, length, batch, validation=0.0):
        ids = numpy.fromfile(path, "<u2" if vocabulary < 65536 else "<u4").astype(numpy.int64)
        self.ids, self.length, self.batch = torch.from_numpy(ids), length, batch
        sequences = (len(ids) - 1) // length
        self.sequences = sequences - (max(1, math.floor(sequences * validation)) if validation else 0)

    def step(self, step):
        first = (step - 1) * self.batch
        return torch.stack([self.ids[j * self.length:j * self.length + self.length + 1]
                            for j in ((first + row) % self.sequences for row in range(self.batch))])


def learning_rate(name, lr, step, steps, warmup, min_ratio):
    """Returns the learning rate of applied update `step` (from 1): linear warm-up, then the schedule down to min_ratio · lr at the end."""
    if step <= warmup:
        return lr * step / warmup
    progress = (step - warmup) / (steps - warmup)
    shape = {"constant": 1.0, "linear": min_ratio + (1 - min_ratio) * (1 - progress),
             "cosine": min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress))}
    return lr * shape[name]


def read_run(path):
    """Reads a run config and fills in defaults of the required settings."""
    run = tomllib.loads(pathlib.Path(path).read_text())
    defaults = {"data": {"sequence_length": 256, "validation": 0.02},
                "batch": {"global_batch_size": 32},
                "optimizer": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "max_grad_norm": 1.0},
                "schedule": {"name": "cosine", "warmup_steps": 20, "min_lr_ratio": 0.1}}
    for section, values in defaults.items():
        run[section] = values | run.get(section, {})
    data = run["data"]
    if data.get("format") != "tokens" or data.get("shuffle", True) or not run["model"].get("path"):
        sys.exit(f"{path}: expected model.path, data.format = \"tokens\" and data.shuffle = false; other data orders are specific to Mantissa")
    base = pathlib.Path(path).parent
    source = data["source"]
    return run, base / run["model"]["path"], base / (source if isinstance(source, str) else source[0])


def adamw(weights, settings):
    """Creates AdamW with decay only on tensors of two or more dimensions."""
    groups = [{"params": [w for w in weights if w.ndim >= 2], "weight_decay": settings["weight_decay"]},
              {"params": [w for w in weights if w.ndim < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings["lr"], betas=tuple(settings["betas"]), eps=settings["eps"])


def train(path, dtype_name):
    """Yields step, loss (of the whole step, before the update), grad_norm (unscaled, before clipping), lr, loss_scale and
    skipped (true if the gradients are not finite; such a step changes only the scale)."""
    run, model, tokens = read_run(path)
    config, dtype = Config.read(model), DTYPES[dtype_name]
    weights = {name: w.requires_grad_() for name, w in read_weights(model, dtype).items()}
    settings, steps = run["optimizer"], run["run"]["steps"]
    data = TokenFile(tokens, config.vocabulary, run["data"]["sequence_length"], run["batch"]["global_batch_size"],
                     run["data"]["validation"])
    optimizer = adamw(list(weights.values()), settings)
    tables = rope_tables(config, data.length, dtype)
    schedule = run["schedule"]
    scaler = LossScale(run.get("precision", {}).get("loss_scale", {}) if dtype_name == "f16-autocast" else None)
    applied = 0
    for step in range(1, steps + 1):
        rows = data.step(step)
        with autocast(dtype_name):
            logits = forward(config, weights, rows[:, :-1], tables)
        loss = F.cross_entropy(logits.to(dtype).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        scale = scaler.scale
        (loss * scale).backward()
        for w in weights.values():
            w.grad /= scale
        norm = torch.nn.utils.clip_grad_norm_(weights.values(), settings["max_grad_norm"])
        overflow = not math.isfinite(norm)
        lr = learning_rate(schedule["name"], settings["lr"], applied + 1, steps, schedule["warmup_steps"], schedule["min_lr_ratio"])
        if not overflow:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
            applied += 1
        scaler.update(overflow)
        yield {"step": step, "loss": loss.item(), "grad_norm": norm.item(), "lr": lr, "loss_scale": scale, "skipped": overflow}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("trace", help="write the tensors of one forward and backward pass")
    one.add_argument("model", help="a Hugging Face directory")
    one.add_argument("--tokens", required=True)
    one.add_argument("--out", required=True)
    one.add_argument("--dtype", choices=DTYPES, default="f64")
    one.add_argument("--rope-f32", action="store_true", help="use the f32 rotation tables, also in f64")
    many = verbs.add_parser("train", help="run optimizer steps of a run config")
    many.add_argument("config")
    many.add_argument("--dtype", choices=DTYPES, default="f64")
    args = parser.parse_args()
    if args.verb == "train":
        for line in train(args.config, args.dtype):
            print(json.dumps(line), flush=True)
        return
    save_file(trace(args.model, *read_tokens(args.tokens), args.dtype, args.rope_f32), args.out)


if __name__ == "__main__":
    main()
