#include "mantissa/precision/compat/foreign.h"

#include <algorithm>
#include <span>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/precision/compat/foreign_dtypes.h"
#include "mantissa/precision/compat/foreign_options.h"
#include "mantissa/precision/compat/foreign_recipes.h"

namespace mantissa::compat {
namespace {

struct Word {
  std::string_view word;  // in lower case
  std::string_view line;
};

/// Words of jax.default_matmul_precision and lax.Precision (as products run on a TPU) and of
/// lax.DotAlgorithmPreset.
constexpr Word kJax[] = {
    {"default", "bf16-matmul"},
    {"fastest", "bf16-matmul"},
    {"bfloat16", "bf16-matmul"},
    {"high", "bf16-matmul-x3"},
    {"bfloat16_3x", "bf16-matmul-x3"},
    {"highest", "bf16-matmul-x6"},
    {"float32", "bf16-matmul-x6"},
    {"bfloat16_6x", "bf16-matmul-x6"},
    {"tensorfloat32", "tf32"},
    {"bf16_bf16_f32", "bf16-matmul"},
    {"bf16_bf16_f32_x3", "bf16-matmul-x3"},
    {"bf16_bf16_f32_x6", "bf16-matmul-x6"},
    {"tf32_tf32_f32", "tf32"},
    {"f32_f32_f32", "32-true"},
    {"f64_f64_f64", "64-true"},
};

/// Unsupported values of lax.DotAlgorithmPreset, and the nearest supported policy.
constexpr Word kJaxRefused[] = {
    {"f16_f16_f32",
     "no policy rounds only operands to f16; write 16-mixed, which also stores activations in f16, or "
     "bf16-matmul, which rounds only operands, to bf16"},
    {"f16_f16_f16", "write \"16-mixed accumulate=f16\", which also stores activations in f16"},
    {"bf16_bf16_bf16", "write \"bf16-mixed accumulate=bf16\", which also stores activations in bf16"},
    {"bf16_bf16_f32_x9", "at most six products of parts are supported; write bf16-matmul-x6, or 32-true"},
    {"tf32_tf32_f32_x3", "tf32 cannot be split into parts; write bf16-matmul-x6, or 32-true"},
    {"any_f8_any_f8_f32", "8-bit operands need scales; write fp8-hybrid"},
    {"any_f8_any_f8_f32_fast_accum", "8-bit operands need scales; write fp8-hybrid"},
    {"any_f8_any_f8_any", "8-bit operands need scales; write fp8-hybrid"},
    {"any_f8_any_f8_any_fast_accum", "8-bit operands need scales; write fp8-hybrid"},
};

/// Words of torch.set_float32_matmul_precision.
constexpr Word kTorchMatmul[] = {{"highest", "32-true"}, {"high", "tf32"}, {"medium", "bf16-matmul"}};

/// Words of other systems: Composer, Keras, accelerate, Fabric.
constexpr Word kOthers[] = {
    {"medium", "bf16-matmul"},
    {"amp_bf16", "bf16-mixed"},
    {"amp_fp16", "16-mixed"},
    {"amp_fp8", "fp8-hybrid"},
    {"mixed_float16", "16-mixed"},
    {"mixed_bfloat16", "bf16-mixed"},
    {"transformer_engine", "fp8-hybrid"},
    // Everything but the fp8 operands is f16, which needs a loss scale.
    {"transformer-engine-float16", "fp8-hybrid compute=fp8-hybrid-f16 kv=f16 loss_scale=dynamic:2^16"},
    {"no", "32-true"},
};

/// The option or function that a value belongs to, and its words; empty: those of --precision.
struct Owner {
  std::string_view name;
  std::span<const Word> words;
};

constexpr Owner kOwners[] = {
    {"dtype", {}},
    {"torch_dtype", {}},
    {"precision", {}},
    {"mixed_precision", {}},
    {"jax_default_matmul_precision", kJax},
    {"default_matmul_precision", kJax},
    {"matmul_precision", kJax},
    {"float32_matmul_precision", kTorchMatmul},
    {"set_float32_matmul_precision", kTorchMatmul},
};

/// "lax.Precision.HIGHEST" → "HIGHEST".
std::string_view last_part(std::string_view path) {
  return path.substr(path.rfind('.') + 1);
}

const Word* find_word(std::span<const Word> words, std::string_view word) {
  const std::string wanted = lowered(word);
  const auto found = std::ranges::find(words, wanted, &Word::word);
  return found == words.end() ? nullptr : &*found;
}

void refuse_jax(std::string_view word) {
  if (const Word* refused = find_word(kJaxRefused, word))
    throw ConfigError("{}: {}", in_quotes(word), refused->line);
}

std::optional<std::string> plain_word(std::string_view word) {
  const bool jax_path = word.find("Precision.") != std::string_view::npos ||
                        word.find("DotAlgorithmPreset.") != std::string_view::npos;
  if (jax_path) word = last_part(word);
  refuse_jax(word);
  // Alone, a dtype name means the preset that computes in it. Only under a JAX key is it a matmul precision.
  const bool dtype = word == "bfloat16" || word == "float32";
  const Word* found = dtype && !jax_path ? nullptr : find_word(kJax, word);
  if (found == nullptr) found = find_word(kOthers, word);
  if (found != nullptr) return std::string(found->line);
  const std::optional<Scalar> format = parse_scalar(word);  // torch.half, jnp.bfloat16, np.float64
  const std::string_view preset = format ? preset_computing(*format) : "";
  return preset.empty() ? std::nullopt : std::optional<std::string>(preset);
}

/// Translates the value of an option, or the single argument of a function, by its owner's words.
std::optional<std::string> owned_word(std::string_view owner, std::string_view value) {
  const auto found = std::ranges::find(kOwners, lowered(last_part(owner)), &Owner::name);
  if (found == std::end(kOwners)) return std::nullopt;
  value = unquoted(value);
  if (found->words.empty()) return plain_word(value).value_or(std::string(value));
  if (const Word* word = find_word(found->words, last_part(value))) return std::string(word->line);
  refuse_jax(last_part(value));
  const std::vector<std::string> names = names_of(found->words, &Word::word);
  throw ConfigError("{}={}: unknown matmul precision{} (names: {})", owner, in_quotes(value),
                    did_you_mean(lowered(value), names), list_of(names));
}

/// Translates a command-line option, given without its dashes.
std::optional<Foreign> option_line(std::string_view option) {
  const std::size_t end = option.find_first_of("= \t");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view name = option.substr(0, end), value = unquoted(option.substr(end + 1));
  const auto owner = std::ranges::find(kOwners, lowered(name), &Owner::name);
  if (owner == std::end(kOwners) || value.empty()) return std::nullopt;
  if (!owner->words.empty()) return Foreign{*owned_word(name, value), {}};
  std::optional<Foreign> inner = read_foreign(value);
  return inner ? inner : Foreign{std::string(value), {}};
}

/// Translates the precision argument of Fabric, Trainer or Accelerator.
std::optional<std::string> launcher_line(std::string_view function, std::string_view arguments) {
  if (function != "Fabric" && function != "Trainer" && function != "Accelerator") return std::nullopt;
  for (const std::string_view argument : split_words(arguments, ",\r\n")) {
    const std::size_t equals = argument.find('=');
    const std::string_view key = trimmed(argument.substr(0, equals));
    if (equals == std::string_view::npos || (key != "precision" && key != "mixed_precision")) continue;
    const std::string_view value = trimmed(argument.substr(equals + 1));
    return value == "None" ? "32-true" : owned_word(key, value);  // their default
  }
  throw ConfigError("{}(…) has no precision; write {}({}=\"{}\"), for example", function, function,
                    function == "Accelerator" ? "mixed_precision" : "precision",
                    function == "Accelerator" ? "bf16" : "bf16-mixed");
}

/// A call "FUNCTION(ARGUMENTS)", and the fields that follow it.
struct Call {
  std::string_view function, arguments, more;
};
std::optional<Call> as_call(std::string_view text) {
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
  std::string_view function = trimmed(text.substr(0, open));
  // Also accepts "mixed_precision=MixedPrecision(…)", an argument of an FSDP call.
  function = trimmed(function.substr(function.rfind('=') + 1));
  const bool name = !function.empty() && std::ranges::all_of(function, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
  if (!name) return std::nullopt;
  return Call{last_part(function), trimmed(text.substr(open + 1, close - open - 1)), text.substr(close + 1)};
}

std::optional<Foreign> policy_of_call(const Call& call) {
  if (std::optional<Foreign> dtypes = dtypes_of_call(call.function, call.arguments)) return dtypes;
  if (std::optional<Foreign> recipe = recipe_of_call(call.function, call.arguments)) return recipe;
  std::optional<std::string> line = owned_word(call.function, call.arguments);
  if (!line) line = launcher_line(call.function, call.arguments);
  return line ? std::optional(Foreign{*std::move(line), {}}) : std::nullopt;
}

}  // namespace

std::optional<Foreign> read_foreign(std::string_view text) {
  text = trimmed(text);
  while (text.ends_with(',')) text = trimmed(text.substr(0, text.size() - 1));  // copied from a longer call
  if (std::optional<Foreign> options = policy_of_options(text)) return options;
  if (text.starts_with("--")) {
    text.remove_prefix(2);
    if (std::optional<Foreign> line = option_line(text)) return line;
  }
  if (std::optional<Foreign> dtypes = dtypes_of_dict(text)) return dtypes;
  if (const std::optional<Call> call = as_call(text)) {
    std::optional<Foreign> read = policy_of_call(*call);
    if (read) read->more = call->more;
    return read;
  }
  const std::string_view bare = unquoted(text);
  if (std::optional<Foreign> dtypes = dtypes_of_line(bare)) return dtypes;
  const std::size_t first = std::min(bare.find_first_of(" \t\r\n,="), bare.size());
  if (first < bare.size() && bare[first] == '=' && bare.find('=', first + 1) == std::string_view::npos) {
    std::optional<std::string> line = owned_word(bare.substr(0, first), bare.substr(first + 1));
    if (line) return Foreign{*std::move(line), {}};
  }
  if (first < bare.size() && bare[first] == '=') return std::nullopt;
  if (std::optional<Foreign> recipe = recipe_of_word(bare.substr(0, first))) {
    recipe->more = bare.substr(first);
    return recipe;
  }
  std::optional<std::string> line = plain_word(bare.substr(0, first));
  if (line) return Foreign{*std::move(line), {}, {}, std::string(bare.substr(first))};
  return bare.size() < text.size() ? std::optional(Foreign{std::string(bare), {}}) : std::nullopt;
}

std::vector<std::string> foreign_words() {
  std::vector<std::string> words = {"transformer-engine"};
  for (const Word& word : kJax) words.emplace_back(word.word);
  for (const Word& word : kOthers) words.emplace_back(word.word);
  for (std::string& word : recipe_words()) words.push_back(std::move(word));
  return words;
}

}  // namespace mantissa::compat
