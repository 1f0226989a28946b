// Reads the policy spellings of other systems: Fabric and Lightning, torch, FSDP, jmp, JAX, LWM, RWKV-LM,
// accelerate, Transformer Engine, torchao, torchtitan, Megatron-LM.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

/// A foreign spelling translated to a policy line.
struct Foreign {
  std::string line;                // "bf16-mixed reduce=bf16"
  std::vector<std::string> notes;  // settings without a field here
  std::vector<std::string> rules = {};
  std::string more = {};  // fields that follow the spelling, and replace those of `line`
};

/// Translates `text`, the fields of a policy without its rules, from another system's spelling:
///   words: high, highest, bfloat16_3x (JAX), medium (torch), amp_bf16 (Composer), mixed_float16 (Keras), …;
///   KEY=WORD and FUNCTION("WORD"), where the key or function identifies the system; fields may follow words
///   and calls:
///   dtype=fp32, precision="16-mixed", mixed_precision=no, jax_default_matmul_precision=float32,
///   torch.set_float32_matmul_precision("high"), Fabric(precision="bf16-mixed"); FSDP: param_dtype=…,
///   reduce_dtype=…, buffer_dtype=…, alone, in MixedPrecision(…), or as a dict or JSON; jmp: p=…,c=…,o=… and
///   params=…,compute=…,output=… (the last is optional with jmp's own dtype names), also as jmp.Policy(…) and
///   jmp.get_policy("…"); recipes of Transformer Engine and torchao (foreign_recipes.h), and command lines of
///   Megatron-LM and torchtitan (foreign_options.h).
/// Returns null for any other text. Throws ConfigError for such a spelling with an unsupported value.
std::optional<Foreign> read_foreign(std::string_view text);

/// Returns the words that are allowed in place of a preset, for suggestions.
std::vector<std::string> foreign_words();

}  // namespace mantissa::compat
