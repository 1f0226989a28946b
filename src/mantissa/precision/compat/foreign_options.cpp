#include "mantissa/precision/compat/foreign_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/compat/foreign_arguments.h"
#include "mantissa/precision/compat/foreign_recipes.h"
#include "mantissa/precision/compat/foreign_scopes.h"

namespace mantissa::compat {
namespace {

/// Splits "--a --b=1 --c 2"; options without a value have the value "true".
std::vector<Argument> options_of(std::string_view text) {
  std::vector<Argument> options;
  for (const std::string_view word : split_words(text, " \t\r\n\\")) {
    if (word.starts_with("--")) {
      const std::size_t equals = word.find('=');
      options.push_back({word.substr(2, equals == std::string_view::npos ? equals : equals - 2),
                         equals == std::string_view::npos ? "true" : unquoted(word.substr(equals + 1))});
    } else if (!options.empty()) {
      options.back().value = unquoted(word);
    }
  }
  return options;
}

std::vector<std::string> ignored(Settings& s) {
  std::vector<std::string> notes;
  for (const Argument& option : s.rest())
    notes.push_back(fmt::format("--{} is ignored: it does not set a number format", option.key));
  return notes;
}

Recipe megatron_fp8(Settings& s) {
  const bool hybrid =
      s.word("fp8-format", s.is_set("fp8-e4m3") ? "e4m3" : "hybrid", {"e4m3", "hybrid"}) == "hybrid";
  const std::string kind = s.word("fp8-recipe", "delayed", {"delayed", "tensorwise", "mxfp8", "blockwise"});
  // Its defaults keep one step.
  const std::int64_t margin = s.whole("fp8-margin", 0), history = s.whole("fp8-amax-history-len", 1);
  const bool recent = s.word("fp8-amax-compute-algo", "most_recent", {"max", "most_recent"}) == "most_recent";
  Recipe recipe;
  if (kind == "delayed") {
    recipe =
        recipe_of_tensors(hybrid, fmt::format(" amax_history={}{}", recent ? 1 : history,
                                              margin == 0 ? "" : fmt::format(" scale_margin={}", margin)));
  } else if (kind == "tensorwise") {
    recipe = recipe_of_tensors(hybrid, " scaling=current");
  } else {
    recipe = recipe_of_mxfp8(hybrid, kind == "mxfp8" ? "" : kSquaresOf128);
  }
  if (s.is_set("no-fp8-wgrad")) recipe.rules.emplace_back(kWeightGradientsInBf16);
  return recipe;
}

/// Reads --first-last-layers-bf16. The number of layers is not known here, so the last ones become a note.
void read_first_last(Settings& s, Recipe& recipe) {
  const std::int64_t first = s.whole("num-layers-at-start-in-bf16", 1),
                     last = s.whole("num-layers-at-end-in-bf16", 1);
  if (!s.is_set("first-last-layers-bf16")) return;
  if (first > 0)
    recipe.rules.push_back(first == 1 ? "model.layers.0: compute=bf16"
                                      : fmt::format("model.layers.{{0-{}}}: compute=bf16", first - 1));
  if (last > 0)
    recipe.notes.push_back(fmt::format(
        "--first-last-layers-bf16: add a rule for the last {}, such as --rule 'model.layers.31: compute=bf16'",
        last == 1 ? "layer" : fmt::format("{} layers", last)));
}

// ---- Megatron-LM -----------------------------------------------------------------------------------------

std::string megatron_base(Settings& s) {
  const bool bf16 = s.is_set("bf16"), fp16 = s.is_set("fp16");
  if (bf16 && fp16) throw ConfigError("Megatron-LM: --bf16 and --fp16 contradict each other; keep one");
  std::string base = bf16 ? "bf16-mixed" : fp16 ? "16-mixed" : "32-true";
  const bool wide = s.is_set("fp32-residual-connection");
  if ((bf16 || fp16) && !wide) base += bf16 ? " residual=bf16" : " residual=f16";
  if (s.is_set("grad-reduce-in-bf16")) base += " reduce=bf16 grads=bf16";
  s.is_set("accumulate-allreduce-grads-in-fp32");  // usual here
  s.is_set("attention-softmax-in-fp32");           // usual here
  if (const std::optional<std::string_view> constant = s.text("loss-scale")) {
    base += fmt::format(" loss_scale={}", *constant);
  } else if (fp16) {
    base += fmt::format(" loss_scale=dynamic:{}", s.text("initial-loss-scale").value_or("2^32"));
  }
  return base;
}

Foreign megatron(std::vector<Argument> options) {
  Settings s("Megatron-LM", std::move(options));
  std::string base = megatron_base(s);
  const bool fp4 = s.text("fp4-format").has_value();
  s.word("fp4-recipe", "nvfp4", {"nvfp4"});
  const bool old = s.is_set("fp8-hybrid");
  Recipe recipe;
  if (fp4) {
    recipe = recipe_of_nvfp4(true, true, true);
  } else if (old || s.has("fp8-format")) {
    if (base.starts_with("16-mixed"))
      throw ConfigError("Megatron-LM: --fp8-format with --fp16: 8-bit products give bf16; write --bf16");
    recipe = megatron_fp8(s);
  }
  read_first_last(s, recipe);
  for (std::string& note : ignored(s)) recipe.notes.push_back(std::move(note));
  return on(std::move(base), std::move(recipe));
}

// ---- torchtitan ------------------------------------------------------------------------------------------

std::string torchtitan_base(Settings& s) {
  const std::vector<std::string> dtypes = {"bfloat16", "float32"};
  if (s.word("training.dtype", "float32", dtypes) == "bfloat16") return "bf16-true";
  const std::string compute = s.word("training.mixed_precision_param", "bfloat16", dtypes);
  s.word("training.mixed_precision_reduce", "float32", {"float32"});
  return compute == "bfloat16" ? "bf16-mixed residual=bf16" : "32-true";
}

Foreign torchtitan(std::vector<Argument> options) {
  for (Argument& option : options) {
    constexpr std::string_view kFolder = "quantize.linear.";
    if (option.key.starts_with(kFolder)) option.key.remove_prefix(kFolder.size());
  }
  Settings s("torchtitan", std::move(options));
  std::string base = torchtitan_base(s);
  const std::optional<std::string_view> float8 = s.text("float8.recipe_name"), mx = s.text("mx.recipe_name");
  if (float8 && mx)
    throw ConfigError("torchtitan: float8.recipe_name and mx.recipe_name are both set; keep one");
  Recipe recipe;
  if (float8 || mx) recipe = recipe_of_torchao(float8 ? *float8 : *mx);
  for (const std::string_view key : {"float8.filter_fqns", "mx.filter_fqns"}) {
    for (const std::string_view name : split_words(s.text(key).value_or(""), ",[]\"' "))
      recipe.rules.push_back(fmt::format("{}: compute=bf16", "*" + translated_scope(name) + "*"));
  }
  for (std::string& note : ignored(s)) recipe.notes.push_back(std::move(note));
  return on(std::move(base), std::move(recipe));
}

bool is_torchtitans(std::string_view key) {
  return key.starts_with("quantize.linear.") || key.starts_with("training.mixed_precision_") ||
         key.starts_with("float8.") || key.starts_with("mx.");
}

bool is_megatrons(std::string_view key) {
  constexpr std::string_view kKeys[] = {"bf16",       "fp16",       "fp8-format", "fp8-recipe",
                                        "fp8-hybrid", "fp4-format", "fp8-e4m3"};
  return std::ranges::find(kKeys, key) != std::end(kKeys);
}

}  // namespace

std::optional<Foreign> policy_of_options(std::string_view text) {
  if (!text.starts_with("--")) return std::nullopt;
  std::vector<Argument> options = options_of(text);
  if (std::ranges::any_of(options, is_torchtitans, &Argument::key)) return torchtitan(std::move(options));
  if (std::ranges::any_of(options, is_megatrons, &Argument::key)) return megatron(std::move(options));
  return std::nullopt;
}

}  // namespace mantissa::compat
