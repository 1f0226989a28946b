// Policies that other systems express as a few dtypes: FSDP's MixedPrecision, jmp's Policy.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mantissa/core/numeric/format.h"
#include "mantissa/precision/compat/foreign.h"

namespace mantissa::compat {

/// Returns the preset with f32 masters that computes in `format` (64-true for f64), or "".
std::string_view preset_computing(Scalar format);

/// Returns a note on `key`, which casts a module to a 16-bit `format` and not only its products.
std::string whole_module_note(std::string_view key, Scalar format);

/// Translates a call of MixedPrecision, MixedPrecisionPolicy, dict (FSDP), Policy or get_policy (jmp) with
/// named or positional arguments. Returns null for another function. Throws ConfigError.
std::optional<Foreign> dtypes_of_call(std::string_view function, std::string_view arguments);

/// Translates FSDP's {"param_dtype": "bfloat16", …}, in Python or JSON. Returns null for another text. Throws
/// ConfigError.
std::optional<Foreign> dtypes_of_dict(std::string_view text);

/// Translates FSDP's "param_dtype=… reduce_dtype=…", which may also contain policy fields, and jmp's
/// "p=…,c=…,o=…" or params, compute and output. Returns null for another line. Throws ConfigError.
std::optional<Foreign> dtypes_of_line(std::string_view line);

}  // namespace mantissa::compat
