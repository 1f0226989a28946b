#!/usr/bin/env python3
"""Makes tests/golden/families: tiny models of every family and what PyTorch computes with them, so that tests need
no Python.

    golden_families.py [DIRECTORY] [--only CASE]

    tokens.safetensors   input_ids [2, 17] and labels (-100: ignored)
    CASE/                a Hugging Face directory, and
      trace_f64.safetensors    logits, log_probs, loss, and 32 elements of each gradient (tools/golden_trace.py), in f64: the
                               code of transformers with every cast to float32 made a cast to float64, or torch_rwkv7.py
      spreads.json             for every tensor, whole: max|f32 - f64| of transformers (for rwkv7 of two orders of its sums),
                               at least half an f32 ulp of its largest value

Sequences are longer than the windows and than the original contexts of scaled positions. Weights of the cases named "tied" are
stored in bf16. With --only, only the folder of that case is written.
"""
import copy
import json

import torch
import transformers
from safetensors.torch import save_file

import torch_rwkv7
from families import IGNORED, AllF64, distance, make, parameters, stored, trace, widened
from golden import arguments
from golden_trace import sample, short

VOCABULARY, LENGTH, ROWS = 29, 17, 2
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=16, intermediate_size=14, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=6, max_position_embeddings=32, bos_token_id=None, eos_token_id=None,
             pad_token_id=None)
GPT2 = dict(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=LENGTH)


def cases():
    """(directory, config class, fields)."""
    from transformers import (GPT2Config, Gemma2Config, Gemma3TextConfig, Glm4Config, GlmConfig, GraniteConfig, LlamaConfig, MistralConfig,
                              MixtralConfig, Olmo2Config, OlmoeConfig, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig, SmolLM3Config,
                              StableLmConfig)

    def rope(kind, **more):
        return dict(rope_parameters=dict(rope_theta=500.0, rope_type=kind, **more))

    windowed, whole = "sliding_attention", "full_attention"
    llama3 = rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)
    yarn = rope("yarn", factor=4.0, original_max_position_embeddings=8)
    yarn_scaled = rope("yarn", factor=8.0, original_max_position_embeddings=4, mscale=0.7, mscale_all_dim=0.9, beta_fast=16.0,
                       beta_slow=2.0, truncate=False)
    yield "llama-tied", LlamaConfig, llama3 | dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)
    yield "llama-dynamic", LlamaConfig, rope("dynamic", factor=2.0) | dict(max_position_embeddings=8, num_key_value_heads=4)
    yield "mistral", MistralConfig, yarn | dict(sliding_window=5, num_key_value_heads=1)
    yield "mistral-tied", MistralConfig, dict(sliding_window=None, tie_word_embeddings=True)
    yield "phi3", Phi3Config, dict(sliding_window=5, num_key_value_heads=1, pad_token_id=3)
    yield "phi3-tied", Phi3Config, rope("default") | dict(tie_word_embeddings=True)
    yield "phi3-partial", Phi3Config, rope("default", partial_rotary_factor=0.75)
    yield "glm", GlmConfig, dict(num_key_value_heads=1, head_dim=12)
    yield "glm-tied", GlmConfig, yarn | dict(head_dim=8, partial_rotary_factor=0.75, attention_bias=False, tie_word_embeddings=True)
    yield "glm4", Glm4Config, dict(num_key_value_heads=1, head_dim=12)
    yield "glm4-tied", Glm4Config, dict(head_dim=8, attention_bias=False, tie_word_embeddings=True)
    yield "qwen2", Qwen2Config, rope("linear", factor=3.0) | dict(use_sliding_window=True, sliding_window=4, layer_types=[
        windowed, whole])
    yield "qwen2-tied", Qwen2Config, yarn_scaled | dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=6,
                                                        max_window_layers=1)
    yield "qwen3", Qwen3Config, dict(head_dim=10, attention_bias=True, use_sliding_window=True, sliding_window=3,
                                     max_window_layers=0)
    yield "qwen3-tied", Qwen3Config, yarn | dict(tie_word_embeddings=True, num_key_value_heads=1)
    yield "qwen3-moe", Qwen3MoeConfig, dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=10, num_hidden_layers=3,
                                            mlp_only_layers=[1], use_sliding_window=True, sliding_window=5)
    yield "qwen3-moe-tied", Qwen3MoeConfig, yarn | dict(num_experts=5, num_experts_per_tok=3, moe_intermediate_size=8,
                                                        norm_topk_prob=True, attention_bias=True, tie_word_embeddings=True)
    yield "mixtral", MixtralConfig, dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=5)
    yield "mixtral-tied", MixtralConfig, dict(num_local_experts=3, num_experts_per_tok=1, tie_word_embeddings=True)
    yield "olmo2", Olmo2Config, yarn | dict(attention_bias=True)
    yield "olmo2-tied", Olmo2Config, dict(num_key_value_heads=1, head_dim=4, tie_word_embeddings=True, pad_token_id=3)
    yield "olmoe", OlmoeConfig, dict(head_dim=4, num_experts=6, num_experts_per_tok=2)
    yield "olmoe-tied", OlmoeConfig, dict(head_dim=4, num_experts=4, num_experts_per_tok=3, norm_topk_prob=True, attention_bias=True,
                                          tie_word_embeddings=True)
    yield "smollm3", SmolLM3Config, yarn | dict(no_rope_layers=[0, 1], tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
    yield "smollm3-tied", SmolLM3Config, dict(num_hidden_layers=3, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=5,
                                              num_key_value_heads=1)
    yield "stablelm", StableLmConfig, yarn | dict(head_dim=4, num_key_value_heads=1, partial_rotary_factor=0.5, use_qkv_bias=True)
    yield "stablelm-tied", StableLmConfig, dict(  # more heads than a split has parts
        hidden_size=40, num_attention_heads=10, num_key_value_heads=10, head_dim=4, partial_rotary_factor=0.5, qk_layernorm=True,
        use_parallel_residual=True, tie_word_embeddings=True, layer_norm_eps=1e-3)
    yield "granite", GraniteConfig, yarn | dict(attention_bias=True, mlp_bias=True, embedding_multiplier=3.5, attention_multiplier=0.3,
                                                residual_multiplier=0.7, logits_scaling=3.0)
    yield "granite-tied", GraniteConfig, dict(num_key_value_heads=1, tie_word_embeddings=True, embedding_multiplier=12.0,
                                              attention_multiplier=0.25, residual_multiplier=0.22, logits_scaling=8.0)
    yield "gemma2-tied", Gemma2Config, dict(sliding_window=4, query_pre_attn_scalar=11, attn_logit_softcapping=0.7,
                                            final_logit_softcapping=1.5)
    yield "gemma2", Gemma2Config, llama3 | dict(sliding_window=4, attn_logit_softcapping=None, final_logit_softcapping=None,
                                                tie_word_embeddings=False, attention_bias=True)
    yield "gemma3-tied", Gemma3TextConfig, dict(sliding_window=4, query_pre_attn_scalar=7, num_hidden_layers=3,
                                                layer_types=[windowed, windowed, whole])
    yield "gemma3", Gemma3TextConfig, dict(
        sliding_window=5, tie_word_embeddings=False, attention_bias=True, layer_types=[whole, windowed],
        final_logit_softcapping=4.0,
        rope_parameters=dict(full_attention=dict(rope_type="linear", factor=8.0, rope_theta=5000.0),
                             sliding_attention=dict(rope_type="default", rope_theta=100.0)))
    yield "gpt2-tied", GPT2Config, {}
    yield "gpt2", GPT2Config, dict(tie_word_embeddings=False, n_inner=22, scale_attn_by_inverse_layer_idx=True,
                                   layer_norm_epsilon=1e-3)
    yield "gpt2-gelu-tied", GPT2Config, dict(activation_function="gelu")
    yield "gpt2-quick-tied", GPT2Config, dict(activation_function="quick_gelu")
    yield "rwkv7", torch_rwkv7.Config, dict(num_hidden_layers=3)
    yield "rwkv7-tied", torch_rwkv7.Config, dict(tie_word_embeddings=True, head_dim=4, num_heads=6)


def write_case(directory, config_class, fields, ids, labels):
    base = GPT2 if config_class.model_type == "gpt2" else SHAPE
    tied = directory.name.endswith("tied")
    form = torch.bfloat16 if tied else torch.float32
    if config_class is torch_rwkv7.Config:
        model = torch_rwkv7.make(config_class(**fields), form=form)
        f64 = trace(copy.deepcopy(model).double(), ids, labels)
    else:
        model = make(config_class, base | fields, form=form)
        with AllF64():
            f64 = trace(widened(model), ids, labels)
    f32 = [trace(model, ids, labels)]
    if config_class is torch_rwkv7.Config:
        with torch_rwkv7.OtherOrder():
            f32.append(trace(model, ids, labels))
    directory.mkdir(parents=True, exist_ok=True)
    model = model.to(torch.bfloat16 if tied else torch.float32)
    weights = stored(parameters(model, {name: p.detach() for name, p in model.named_parameters()}))
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    model.config.save_pretrained(directory)
    save_file({name: sample(name, t) for name, t in f64.items()}, directory / "trace_f64.safetensors")
    spreads = {name: max(*(short(torch.tensor(distance(one[name], t))) for one in f32), short(t.abs().max() * 2.0**-24))
               for name, t in f64.items()}
    (directory / "spreads.json").write_text(json.dumps(spreads, indent=1) + "\n")


def main():
    root, only = arguments(__doc__, "families", [name for name, _, _ in cases()])
    transformers.utils.logging.disable_progress_bar()
    generator = torch.Generator().manual_seed(17)
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=generator)
    labels = torch.where(torch.rand(ids.shape, generator=generator) < 0.2, IGNORED, ids)
    root.mkdir(parents=True, exist_ok=True)
    if only is None:
        save_file({"input_ids": ids, "labels": labels}, root / "tokens.safetensors")
    for name, config_class, fields in cases():
        if only in (None, name):
            write_case(root / name, config_class, fields, ids, labels)


if __name__ == "__main__":
    main()
