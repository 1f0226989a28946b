// Policies that other systems say as a few dtypes: FSDP's MixedPrecision, jmp's Policy.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mantissa/compat/foreign.h"
#include "mantissa/numeric/format.h"

namespace mantissa::compat {

/// The preset with f32 masters that computes in `format` (64-true under f64); "" where there is none.
std::string_view preset_computing(Scalar format);

/// What `key`, which casts a module to a `format` of 16 bits and not only its products, means here.
std::string whole_module_note(std::string_view key, Scalar format);

/// MixedPrecision, MixedPrecisionPolicy, dict (FSDP), Policy and get_policy (jmp) with their arguments, by
/// name or by place; none for another function. Throws ConfigError.
std::optional<Foreign> dtypes_of_call(std::string_view function, std::string_view arguments);

/// {"param_dtype": "bfloat16", …} as FSDP means it, Python or JSON; none for another text. Throws
/// ConfigError.
std::optional<Foreign> dtypes_of_dict(std::string_view text);

/// "param_dtype=… reduce_dtype=…" as FSDP means it, "p=…,c=…,o=…" and params, compute and output as jmp means
/// them; none for another line. Fields of this language may stand among FSDP's. Throws
/// ConfigError.
std::optional<Foreign> dtypes_of_line(std::string_view line);

}  // namespace mantissa::compat
