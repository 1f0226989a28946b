// What modules and ops are called in other systems.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mantissa::compat {

/// `pattern`, a glob over the module paths of GPT-2, Lit-GPT, Meta's Llama, GPT-NeoX or RWKV, as one over
/// those of Hugging Face's Llama: "transformer.h.0.attn" → "model.layers.0.self_attn". What has no other name
/// stays.
std::string translated_scope(std::string_view pattern);

/// The op that is called `name` elsewhere: "linear" → "matmul"; none where that is no name of one.
std::optional<std::string_view> translated_op(std::string_view name);

}  // namespace mantissa::compat
