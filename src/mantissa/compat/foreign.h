// Policies as other systems spell them: Fabric and Lightning, torch, FSDP, jmp, JAX, LWM, RWKV-LM,
// accelerate.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

/// A foreign spelling in this language.
struct Foreign {
  std::string line;                // "bf16-mixed reduce=bf16"
  std::vector<std::string> notes;  // what was said and has no field here
};

/// What `text`, the fields of a policy without its rules, says in another system's words:
///   words: high, highest, bfloat16_3x (JAX), medium (torch), amp_bf16 (Composer), mixed_float16 (Keras), …;
///     fields may follow;
///   KEY=WORD and FUNCTION("WORD"), where the key or the function says whose word it is:
///   dtype=fp32, precision="16-mixed", mixed_precision=no, jax_default_matmul_precision=float32,
///     torch.set_float32_matmul_precision("high"), Fabric(precision="bf16-mixed");
///   param_dtype=…, reduce_dtype=…, buffer_dtype=…, also inside MixedPrecision(…) (FSDP), or a dict or JSON
///   of them; p=…,c=…,o=… and params=…,compute=…,output=… (the last may be left out of jmp's own dtypes),
///   also jmp.Policy(…) and jmp.get_policy("…") (jmp).
/// None where it is no such spelling. Throws ConfigError where it is one and says what cannot be.
std::optional<Foreign> read_foreign(std::string_view text);

/// The words that may stand in a preset's place, for suggestions.
std::vector<std::string> foreign_words();

}  // namespace mantissa::compat
