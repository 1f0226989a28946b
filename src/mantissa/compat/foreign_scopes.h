// The names of modules and ops in other systems.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mantissa::compat {

/// Translates `pattern`, a glob over the module paths of GPT-2, Lit-GPT, Meta's Llama, GPT-NeoX or RWKV, to
/// the paths of Hugging Face's Llama: "transformer.h.0.attn" becomes "model.layers.0.self_attn". Unknown
/// parts stay.
std::string translated_scope(std::string_view pattern);

/// Returns the local name of the op `name` of another system ("linear" gives "matmul"), or null.
std::optional<std::string_view> translated_op(std::string_view name);

}  // namespace mantissa::compat
