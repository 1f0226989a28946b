#!/usr/bin/env python3
"""Makes tests/golden: two tiny Llamas and what plain PyTorch computes with them, so that tests need no Python.

    golden_trace.py [DIRECTORY] [--only untied|tied]

    tokens.safetensors   input_ids [2, 12] and labels (-100: ignored)      tokens.u16   ids for training, raw
    untied/ tied/        a Hugging Face directory each, weights in f32 and in bf16, and
      trace_f64.safetensors    logits, log_probs, loss, and grad.<weight>: 32 elements of each gradient, element
                               floor(i · size / 32) of its flat values (all of them where there are fewer), all in f64
      trace_bf16.safetensors   the same under the rounding points of bf16-mixed, computed in f64 arithmetic, stored in f32
      spreads.json             for every tensor, whole: "f32" max|f32 - f64| of PyTorch, "bf16-autocast" the same of its autocast,
                               "bf16-emulated" max|f32 - f64 arithmetic| of the rounding points, "rms" the f64 root mean square
      train.toml, losses.json  a run of 40 steps, and loss and grad_norm of every step in f64, f32 and bf16-autocast

The seed is one for which no value lies so near the middle of two bf16 numbers that f32 summation errors decide its rounding:
an implementation with the right rounding points agrees to f32 accuracy, and one that lacks any of them does not. With --only,
only the folder of that model is written.
"""
import json

import numpy
import torch
from safetensors.torch import save_file

import rounding_points
import torch_llama
from golden import arguments

SEED = 14
SAMPLES = 32
SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             intermediate_size=48, vocab_size=64)
MODELS = ("untied", "tied")
RUN = """\
[run]
name = "golden"
out = "run"
steps = 40

[model]
path = "."

[data]
source = "../tokens.u16"
format = "tokens"
sequence_length = 12
shuffle = false
validation = 0

[batch]
global_batch_size = 4
micro_batch_size = 2

[optimizer]
lr = 1e-2

[schedule]
warmup_steps = 5
"""


def write_model(directory, tied, generator, write=True):
    """Draws the weights of a model, and writes it unless `write` is false."""
    config = SHAPE | dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5,
                          rope_theta=10000.0, max_position_embeddings=64, initializer_range=0.02, attention_bias=False,
                          mlp_bias=False, tie_word_embeddings=tied, torch_dtype="bfloat16" if tied else "float32")
    h, i, v = SHAPE["hidden_size"], SHAPE["intermediate_size"], SHAPE["vocab_size"]
    kv = SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    shapes = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,)} | ({} if tied else {"lm_head.weight": (v, h)})
    for layer in range(SHAPE["num_hidden_layers"]):
        scope = f"model.layers.{layer}."
        shapes |= {scope + "input_layernorm.weight": (h,), scope + "post_attention_layernorm.weight": (h,),
                   scope + "self_attn.q_proj.weight": (h, h), scope + "self_attn.k_proj.weight": (kv, h),
                   scope + "self_attn.v_proj.weight": (kv, h), scope + "self_attn.o_proj.weight": (h, h),
                   scope + "mlp.gate_proj.weight": (i, h), scope + "mlp.up_proj.weight": (i, h),
                   scope + "mlp.down_proj.weight": (h, i)}
    weights = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        w = 1 + 0.2 * noise if len(shape) == 1 else 0.15 * noise
        weights[name] = w.bfloat16() if tied else w
    if not write:
        return
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(weights, directory / "model.safetensors", {"format": "pt"})


def write_tokens(root, generator, write=True):
    vocabulary = SHAPE["vocab_size"]
    ids = torch.randint(0, vocabulary, (2, 12), generator=generator)
    labels = torch.where(torch.rand(ids.shape, generator=generator) < 0.2, torch_llama.IGNORED, ids)
    if not write:
        return ids, labels
    save_file({"input_ids": ids, "labels": labels}, root / "tokens.safetensors")
    # A walk with noise: something to learn. 49 sequences of 12, so that batches of 4 wrap within a batch.
    noise = torch.randint(0, vocabulary, (600,), generator=generator)
    jump = torch.rand(600, generator=generator) < 0.15
    stream = [0]
    for t in range(1, 600):
        stream.append(int(noise[t]) if jump[t] else (stream[-1] * 5 + 3) % vocabulary)
    numpy.array(stream, "<u2").tofile(root / "tokens.u16")
    return ids, labels


def sample(name, tensor):
    if not name.startswith("grad.") or tensor.numel() <= SAMPLES:
        return tensor.contiguous()
    flat = tensor.flatten()
    return torch.stack([flat[i * flat.numel() // SAMPLES] for i in range(SAMPLES)])


def short(number):
    return float(f"{number.item():.4g}")


def spread(a, b):
    return {name: short((a[name].double() - b[name].double()).abs().max()) for name in b}


def write_golden(directory, ids, labels):
    traces = {d: torch_llama.trace(directory, ids, labels, d) for d in ("f64", "f32", "bf16-autocast")}
    emulated = {d: rounding_points.trace(directory, ids, labels, d) for d in (torch.float64, torch.float32)}
    spreads = {"f32": spread(traces["f32"], traces["f64"]),
               "bf16-autocast": spread(traces["bf16-autocast"], traces["f64"]),
               "bf16-emulated": spread(emulated[torch.float32], emulated[torch.float64]),
               "rms": {name: t.square().mean().sqrt().item() for name, t in traces["f64"].items()}}
    for name, distance in spreads["bf16-emulated"].items():
        assert distance < 1e-6 * emulated[torch.float64][name].abs().max(), f"{directory}: {name} was rounded otherwise, take another seed"
    save_file({n: sample(n, t) for n, t in traces["f64"].items()}, directory / "trace_f64.safetensors")
    save_file({n: sample(n, t).float() for n, t in emulated[torch.float64].items()}, directory / "trace_bf16.safetensors")
    (directory / "spreads.json").write_text(json.dumps(spreads, indent=1) + "\n")
    (directory / "train.toml").write_text(RUN)
    losses = {}
    for dtype in ("f64", "f32", "bf16-autocast"):
        lines = list(torch_llama.train(directory / "train.toml", dtype))
        losses[dtype] = {key: [line[key] for line in lines] for key in ("loss", "grad_norm")}
    (directory / "losses.json").write_text(json.dumps(losses) + "\n")


def write_inputs(root, seed, only=None):
    generator = torch.Generator().manual_seed(seed)
    for name in MODELS:
        write_model(root / name, name == "tied", generator, only in (None, name))
    return write_tokens(root, generator, only is None)


def main():
    root, only = arguments(__doc__, "", MODELS)
    ids, labels = write_inputs(root, SEED, only)
    for name in [only] if only else MODELS:
        write_golden(root / name, ids, labels)


if __name__ == "__main__":
    main()
