#include "mantissa/precision/compat/foreign_dtypes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/compat/foreign_arguments.h"

namespace mantissa::compat {
namespace {

/// Parses a dtype of torch, numpy, JAX or jmp that a master weight or an operand can have.
Scalar dtype(const Argument& argument) {
  constexpr std::array kFloats = {Scalar::f64, Scalar::f32, Scalar::bf16, Scalar::f16};
  const std::optional<Scalar> found =
      argument.value == "full" ? std::optional(Scalar::f32) : parse_scalar(argument.value);
  if (found && std::ranges::find(kFloats, *found) != kFloats.end()) return *found;
  static const std::vector<std::string> kNames = {"float64", "float32", "bfloat16", "float16"};
  throw ConfigError("{}={}: must be a dtype{} (dtypes: {})", argument.key, in_quotes(argument.value),
                    did_you_mean(argument.value, kNames), list_of(kNames));
}

// ---- FSDP ------------------------------------------------------------------------------------------------

constexpr std::array<std::string_view, 8> kFsdpKeys = {"param_dtype",         "reduce_dtype",
                                                       "buffer_dtype",        "keep_low_precision_grads",
                                                       "cast_forward_inputs", "cast_root_forward_inputs",
                                                       "output_dtype",        "_module_classes_to_ignore"};

/// FSDP keeps f32 masters. param_dtype is the format of weights in the forward and backward pass,
/// reduce_dtype that of gradient sums over ranks; it defaults to param_dtype.
struct Fsdp {
  std::optional<Scalar> param, reduce, buffer, output;
  bool low_grads = false;

  /// Reads `argument` and returns true if it is one of FSDP's.
  bool read(const Argument& argument) {
    const auto said = [&]() -> std::optional<Scalar> {
      return argument.value == "None" || argument.value == "null" ? std::nullopt
                                                                  : std::optional(dtype(argument));
    };
    if (argument.key == "param_dtype") {
      param = said();
    } else if (argument.key == "reduce_dtype") {
      reduce = said();
    } else if (argument.key == "buffer_dtype") {
      buffer = said();
    } else if (argument.key == "output_dtype") {
      output = said();
    } else if (argument.key == "keep_low_precision_grads") {
      low_grads = flag(argument);
    } else if (argument.key == "cast_forward_inputs" || argument.key == "cast_root_forward_inputs") {
      flag(argument);  // no effect: a model's inputs are ids
    } else {
      return false;
    }
    return true;
  }

  Foreign line() const {
    const Scalar compute = param.value_or(Scalar::f32);
    const Scalar wide = compute == Scalar::f64 ? Scalar::f64 : Scalar::f32;
    Foreign out{std::string(preset_computing(compute)), {}};
    if (bytes_of(compute) < 4) {
      out.line += fmt::format(" residual={}", name(compute));
      out.notes.push_back(whole_module_note("param_dtype", compute));
    }
    if (const Scalar sums = reduce.value_or(compute); sums != wide)
      out.line += fmt::format(" reduce={}", name(sums));
    if (output && *output != wide) out.line += fmt::format(" output={}", name(*output));
    if (low_grads) out.line += fmt::format(" grads={}", name(compute));
    if (buffer && bytes_of(*buffer) < 4) {
      out.notes.push_back(
          fmt::format("buffer_dtype={}: buffers (the table of rotary angles) stay f32; they are never cast "
                      "with the weights",
                      name(*buffer)));
    }
    return out;
  }
};

bool is_fsdp_key(std::string_view key) {
  return std::ranges::find(kFsdpKeys, key) != kFsdpKeys.end();
}

Foreign fsdp_call(std::vector<Argument> arguments) {
  for (std::size_t i = 0; i < arguments.size() && arguments[i].key.empty() && i < 3; ++i)
    arguments[i].key = kFsdpKeys[i];
  check_once(arguments);
  Fsdp fsdp;
  for (const Argument& argument : arguments) {
    if (fsdp.read(argument)) continue;
    const std::vector<std::string> keys(kFsdpKeys.begin(), kFsdpKeys.end() - 1);
    const std::string_view word = argument.key.empty() ? argument.value : argument.key;
    throw ConfigError("MixedPrecision has no {}{} (fields: {})", in_quotes(word), did_you_mean(word, keys),
                      list_of(keys));
  }
  return fsdp.line();
}

// ---- jmp -------------------------------------------------------------------------------------------------

/// Returns 0, 1, 2 for the keys of the masters, the computation and the output; null for another key.
std::optional<std::size_t> jmp_place(std::string_view key) {
  constexpr std::array<std::array<std::string_view, 3>, 3> kKeys = {
      {{"p", "params", "param_dtype"}, {"c", "compute", "compute_dtype"}, {"o", "output", "output_dtype"}}};
  for (std::size_t i = 0; i < kKeys.size(); ++i) {
    if (std::ranges::find(kKeys[i], key) != kKeys[i].end()) return i;
  }
  return std::nullopt;
}

/// Missing dtypes have defaults: f32 for the masters, that of the masters for compute, that of compute for
/// the output.
Foreign jmp(std::vector<Argument> arguments) {
  constexpr std::array<std::string_view, 3> kNames = {"params", "compute", "output"};
  for (std::size_t i = 0; i < arguments.size() && arguments[i].key.empty() && i < 3; ++i)
    arguments[i].key = kNames[i];
  std::array<std::optional<Scalar>, 3> said;
  for (const Argument& argument : arguments) {
    const std::optional<std::size_t> place = jmp_place(argument.key);
    if (!place) {
      throw ConfigError("jmp.Policy has no {} (fields: params, compute, output)",
                        in_quotes(argument.key.empty() ? argument.value : argument.key));
    }
    if (said[*place]) throw ConfigError("{} is set twice; keep one", kNames[*place]);
    said[*place] = dtype(argument);
  }
  const Scalar params = said[0].value_or(Scalar::f32);
  const Scalar compute = said[1].value_or(params);
  const Scalar output = said[2].value_or(compute);
  const Scalar wide = compute == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  std::string line;
  if (params == compute && bytes_of(params) < 4) {
    line = params == Scalar::bf16 ? "bf16-true" : "16-true";
  } else {
    line = preset_computing(compute);
    if (params != wide) line += fmt::format(" params={} grads={}", name(params), name(params));
  }
  if (output != wide) line += fmt::format(" output={}", name(output));
  return {line, {}};
}

/// True for dtype names that jmp uses and this policy language does not print.
bool is_jmp_dtype(std::string_view value) {
  constexpr std::array<std::string_view, 6> kNames = {"float64", "float32", "bfloat16",
                                                      "float16", "full",    "half"};
  return std::ranges::find(kNames, value) != kNames.end();
}

/// True if all keys are jmp's and at least one is short, or all three occur, or the first two with commas and
/// jmp's dtype names.
bool is_jmp(std::span<const Argument> arguments, bool commas) {
  bool short_key = false;
  std::array<bool, 3> seen = {};
  for (const Argument& argument : arguments) {
    const std::optional<std::size_t> place = jmp_place(argument.key);
    if (!place) return false;
    seen[*place] = true;
    short_key = short_key || argument.key.size() == 1;
  }
  const bool dtypes = std::ranges::all_of(arguments, is_jmp_dtype, &Argument::value);
  return short_key || (seen[0] && seen[1] && (seen[2] || (commas && dtypes)));
}

}  // namespace

std::string_view preset_computing(Scalar format) {
  switch (format) {
    case Scalar::f64:
      return "64-true";
    case Scalar::f32:
      return "32-true";
    case Scalar::tf32:
      return "tf32";
    case Scalar::bf16:
      return "bf16-mixed";
    case Scalar::f16:
      return "16-mixed";
    default:
      return "";
  }
}

std::string whole_module_note(std::string_view key, Scalar format) {
  return fmt::format(
      "{0} casts the whole module: residual={1}, and embedding rows, norm gains and biases are read from {1} "
      "copies; {2} alone keeps them f32, as autocast does",
      key, name(format), preset_computing(format));
}

std::optional<Foreign> dtypes_of_call(std::string_view function, std::string_view arguments) {
  constexpr std::string_view kBetween = ",\r\n";
  if (function == "MixedPrecision" || function == "MixedPrecisionPolicy")
    return fsdp_call(arguments_of(arguments, kBetween));
  if (function == "dict") {
    std::vector<Argument> said = arguments_of(arguments, kBetween);
    if (std::ranges::none_of(said, is_fsdp_key, &Argument::key)) return std::nullopt;
    return fsdp_call(std::move(said));
  }
  if (function == "Policy") return jmp(arguments_of(arguments, kBetween));
  if (function != "get_policy") return std::nullopt;
  const std::string_view line = unquoted(arguments);
  // A single dtype is positional: it sets the masters, and the others default to it.
  return jmp(arguments_of(line, kBetween));
}

std::optional<Foreign> dtypes_of_dict(std::string_view text) {
  if (!text.starts_with('{') || !text.ends_with('}')) return std::nullopt;
  std::vector<Argument> arguments;
  for (const std::string_view item : split_words(text.substr(1, text.size() - 2), ",\r\n")) {
    if (trimmed(item).empty()) continue;
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    arguments.push_back({unquoted(item.substr(0, colon)), unquoted(item.substr(colon + 1))});
  }
  if (std::ranges::none_of(arguments, is_fsdp_key, &Argument::key)) return std::nullopt;
  return fsdp_call(std::move(arguments));
}

std::optional<Foreign> dtypes_of_line(std::string_view line) {
  const std::vector<Argument> arguments = arguments_of(line, " \t\r\n,");
  if (arguments.empty() || arguments.front().key.empty()) return std::nullopt;
  if (is_jmp(arguments, line.find(',') != std::string_view::npos)) return jmp(arguments);
  const auto has = [&](std::string_view key) {
    return std::ranges::find(arguments, key, &Argument::key) != arguments.end();
  };
  // Next to compute, param_dtype means the masters (jmp, Flax), and the names are those of policy fields.
  if (!(has("param_dtype") || has("buffer_dtype") || has("cast_forward_inputs")) || has("compute") ||
      has("compute_dtype") || has("params")) {
    return std::nullopt;
  }
  check_once(arguments);
  Fsdp fsdp;
  std::string rest;
  for (const Argument& argument : arguments) {
    if (!fsdp.read(argument)) rest += fmt::format(" {}={}", argument.key, argument.value);
  }
  Foreign out = fsdp.line();
  out.line += rest;
  return out;
}

}  // namespace mantissa::compat
