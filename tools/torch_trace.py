#!/usr/bin/env python3
"""Writes a trace of a transformers model, for comparison with `mantissa trace MODEL --values '*'` by `mantissa diff`.

    torch_trace.py MODEL --ids 1,2,3 --out torch.safetensors
    torch_trace.py MODEL --tokens ids.safetensors --out torch.safetensors --dtype bf16
    torch_trace.py MODEL --tokens ids.safetensors --out torch.safetensors --autocast bf16 --device cuda --grads

The values have the names of `mantissa trace`: value.<module>.<op>, in the order of the forward pass, as f32 (f64 under
--dtype f64), and logits, log_probs, loss. Hooks of PyTorch record them: the outputs of embeddings, norms and linear layers, and the
inputs of modules for what happens between modules (attention, the residual sums, the gated product). Q and K after RoPE come from
the model's function apply_rotary_pos_emb. Values that a model computes in another place are missing; `diff` lists them.

--ids-out FILE also writes the ids as a file for `mantissa trace --tokens`. --set KEY=VALUE changes the config, to see what `diff`
says about a wrong rope_theta or rms_norm_eps.
"""
import argparse
import itertools
import json
import struct
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# The fields of a config whose values newer versions of transformers keep by the type of layers, as for Gemma 3.
ROPE_OF_LAYERS = {"rope_theta": "full_attention", "rope_local_base_freq": "sliding_attention"}
GATED = {"silu": "swiglu", "swish": "swiglu", "gelu_pytorch_tanh": "geglu_tanh", "gelu_new": "geglu_tanh"}


class Trace:
    """The recorded values by name, in the order in which the model computes them, as rows of tokens: [batch · tokens, width]."""

    def __init__(self, dtype):
        self.dtype = torch.float64 if dtype == "f64" else torch.float32
        self.values = {}
        self.token_axis = {}  # of values with heads: 1 for [batch, tokens, heads, head_dim], 2 for [batch, heads, tokens, head_dim]
        self.probe = 0  # tokens of a run that only finds these axes; 0: a run that records

    def add(self, name, tensor, rows=True):
        tensor = tensor.detach()
        if self.probe:
            if rows and tensor.dim() == 4:
                self.token_axis[name] = list(tensor.shape).index(self.probe, 1)
            return
        if rows and tensor.dim() == 4:
            tensor = tensor.transpose(1, self.token_axis[name]).flatten(2)
        if rows and tensor.dim() > 2:
            tensor = tensor.flatten(0, -2)
        self.values[name] = tensor.to("cpu", self.dtype).contiguous()

    def write(self, path, about):
        """Writes safetensors in the order of the values, which the library's writer would sort."""
        names = {torch.float32: "F32", torch.float64: "F64"}
        header, offset = {"__metadata__": {"mantissa.order": "forward", "source": about}}, 0
        for name, tensor in self.values.items():
            size = tensor.numel() * tensor.element_size()
            header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in self.values.values():
                file.write(tensor.numpy().tobytes())


def op_of(module):
    """Returns the op that computes a module's output, or None."""
    if isinstance(module, torch.nn.Embedding):
        return "gather"
    if isinstance(module, torch.nn.LayerNorm):
        return "layernorm"
    if type(module).__name__.endswith("RMSNorm"):
        return "rmsnorm"
    if isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D":
        return "matmul"
    return None


def output_hook(trace, name):
    return lambda module, inputs, output: trace.add(name, output[0] if isinstance(output, tuple) else output)


def scaled_embedding_hook(trace, name):
    """For embeddings with a factor, as Gemma's: records the rows without and with it."""
    def hook(module, inputs, output):
        trace.add(f"value.{name}.gather", torch.nn.functional.embedding(inputs[0], module.weight))
        trace.add(f"value.{name}.scale", output)
    return hook


def input_hook(trace, name):
    def hook(module, inputs, kwargs):
        trace.add(name, inputs[0] if inputs else next(iter(kwargs.values())))
    return hook


def inputs_of(model):
    """Returns the values that are the input of a module: from the end of its name to the value. Llama's names, then GPT-2's."""
    act = getattr(model.config, "hidden_act", None) or getattr(model.config, "hidden_activation", None)
    gemma = any(name.endswith("pre_feedforward_layernorm") for name, _ in model.named_modules())
    second_norm = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
    return {
        "self_attn.o_proj": "self_attn.attention",
        "mlp.down_proj": f"mlp.{GATED.get(act, 'swiglu')}",
        second_norm: "self_attn.add",
        "transformer.drop": "transformer.wpe.add",
        "attn.c_proj": "attn.attention",
        "ln_2": "attn.add",
        "mlp.c_proj": "mlp.gelu_tanh",
    }


def watch(model, trace):
    """Adds hooks to the modules of a decoder. The hooks of a module run in the order of registration."""
    inputs = inputs_of(model)
    for name, module in model.named_modules():
        for end, value in inputs.items():
            if name == end or name.endswith("." + end):
                module.register_forward_pre_hook(input_hook(trace, f"value.{name[:-len(end)]}{value}"), with_kwargs=True)
        if hasattr(module, "embed_scale"):
            module.register_forward_hook(scaled_embedding_hook(trace, name))
        elif op_of(module):
            module.register_forward_hook(output_hook(trace, f"value.{name}.{op_of(module)}"))
        layer, _, last = name.rpartition(".")
        if layer.endswith(("layers", ".h")) and last.isdigit():
            module.register_forward_hook(output_hook(trace, f"value.{name}.mlp.add"))


def watch_rope(model, trace):
    """Replaces apply_rotary_pos_emb of the model's file by one that records its results, layer by layer."""
    code = sys.modules[type(model).__module__]
    original = getattr(code, "apply_rotary_pos_emb", None)
    if original is None:
        return  # no rotary embeddings, or elsewhere
    layers = itertools.cycle([name for name, _ in model.named_modules() if name.endswith("self_attn")])

    def recorded(*args, **kwargs):
        q, k = original(*args, **kwargs)
        name = next(layers)
        for part, tensor in (("q", q), ("k", k)):  # [batch, heads, tokens, head_dim] as [batch, tokens, heads · head_dim]
            trace.add(f"value.{name}.rope.{part}", tensor.transpose(1, 2).flatten(2))
        return q, k

    code.apply_rotary_pos_emb = recorded


def parse_value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_config(path, changes):
    config = AutoConfig.from_pretrained(path)
    for change in changes:
        key, _, value = change.partition("=")
        rope = getattr(config, "rope_parameters", None) or {}
        if key in ROPE_OF_LAYERS and ROPE_OF_LAYERS[key] in rope:
            rope[ROPE_OF_LAYERS[key]]["rope_theta"] = parse_value(value)
        elif key in rope:
            rope[key] = parse_value(value)
        elif not hasattr(config, key):
            sys.exit(f"torch_trace: --set {key}: the config has no such field")
        else:
            setattr(config, key, parse_value(value))
    return config


def read_ids(args):
    if args.ids:
        return {"input_ids": torch.tensor([[int(word) for word in args.ids.replace(",", " ").split()]])}
    return load_file(args.tokens)


def find_token_axes(model, trace, device):
    """Runs the model on a number of tokens that no number of heads and no head_dim equals."""
    config = model.config
    sizes = {getattr(config, name, None) for name in ("num_attention_heads", "num_key_value_heads", "n_head", "head_dim")}
    trace.probe = next(tokens for tokens in itertools.count(2) if tokens not in sizes)
    with torch.no_grad():
        model(input_ids=torch.zeros(1, trace.probe, dtype=torch.long, device=device), use_cache=False)
    trace.probe = 0


def run(model, batch, trace, autocast, device, grads):
    ids = batch["input_ids"].long().to(device)
    labels = batch.get("labels", batch["input_ids"]).long().to(device)
    with torch.set_grad_enabled(grads), torch.autocast(device, DTYPES[autocast or "bf16"], enabled=autocast is not None):
        logits = model(input_ids=ids, use_cache=False).logits
    if getattr(model.config, "final_logit_softcapping", None):
        trace.add("value.lm_head.soft_cap", logits)
    trace.add("logits", logits, rows=False)
    wide = logits.double() if logits.dtype == torch.float64 else logits.float()
    scores = torch.log_softmax(wide[:, :-1], -1)
    trace.add("log_probs", scores.gather(-1, ids[:, 1:, None])[..., 0], rows=False)
    wanted = labels[:, 1:]
    loss = torch.nn.functional.nll_loss(scores.flatten(0, 1), wanted.flatten(), ignore_index=-100)
    trace.add("loss", loss.reshape(1), rows=False)
    if grads:
        loss.backward()
        for name, weight in model.named_parameters():
            trace.add(f"grad.{name}", weight.grad, rows=False)
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face directory")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--ids", help="token ids of one sequence: 1,2,3")
    given.add_argument("--tokens", help="safetensors file with input_ids [B, T] and optional labels, as for mantissa trace")
    parser.add_argument("--ids-out", help="also write the ids as such a file")
    parser.add_argument("--out", required=True)
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="format of the weights and of the computation")
    parser.add_argument("--autocast", choices=["bf16", "f16"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--attention", default="eager", help="attn_implementation: eager, sdpa")
    parser.add_argument("--grads", action="store_true", help="also write the gradients of all weights")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change the config; repeatable")
    args = parser.parse_args()

    batch = read_ids(args)
    if args.ids_out:
        save_file(batch, args.ids_out)
    model = AutoModelForCausalLM.from_pretrained(args.model, config=read_config(args.model, args.set), dtype=DTYPES[args.dtype],
                                                 attn_implementation=args.attention).to(args.device).eval()
    trace = Trace(args.dtype)
    watch(model, trace)
    watch_rope(model, trace)
    find_token_axes(model, trace, args.device)
    loss = run(model, batch, trace, args.autocast, args.device, args.grads)
    about = f"torch {torch.__version__}, {args.dtype}, autocast {args.autocast or 'off'}, {args.device}"
    trace.write(args.out, about)
    print(f"loss {loss:.9g}, {len(trace.values)} tensors, {about}, written to {args.out}")


if __name__ == "__main__":
    main()
