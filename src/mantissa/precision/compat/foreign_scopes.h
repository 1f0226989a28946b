// The names of modules and ops in other systems.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

/// Translates `pattern`, a glob over the module paths of GPT-2, Lit-GPT, Meta's Llama, GPT-NeoX or RWKV, to
/// the paths of Hugging Face's Llama: "transformer.h.0.attn" becomes "model.layers.0.self_attn". Unknown
/// parts stay.
std::string translated_scope(std::string_view pattern);

/// Returns the local names that the op `name` of another system may have, the likeliest one first: "linear"
/// gives "matmul". Models differ in what they have, so "norm" gives "rmsnorm" and "layernorm".
std::vector<std::string_view> translated_ops(std::string_view name);

}  // namespace mantissa::compat
