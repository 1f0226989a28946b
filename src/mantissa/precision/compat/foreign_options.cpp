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

/// Options that set formats or sums, of which nothing is read.
bool is_about_numbers(std::string_view key) {
  for (const std::string_view part : {"dtype", "precision", "fp8", "fp4", "bf16", "fp16", "fp32", "float8",
                                      "mx.", "quant", "loss-scale", "converters"}) {
    if (lowered(key).find(part) != std::string::npos) return true;
  }
  return false;
}

std::vector<std::string> ignored(Settings& s) {
  std::vector<std::string> notes;
  for (const Argument& option : s.rest()) {
    notes.push_back(is_about_numbers(option.key)
                        ? fmt::format("--{} {} is not read; set what it means by a field or a rule",
                                      option.key, option.value)
                        : fmt::format("--{} is ignored: it does not set a number format", option.key));
  }
  return notes;
}

/// What holds for every recipe in a module that the other system has cast to 16 bits.
void add_cast_note(const std::string& base, Recipe& recipe) {
  if (recipe.fields.empty() || base.find("-mixed") == std::string::npos) return;
  recipe.notes.emplace_back(
      "weights are rounded to the recipe's format from f32 masters; there from a 16-bit copy of them");
}

// ---- Megatron-LM -----------------------------------------------------------------------------------------

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
  for (Argument& option : options) {
    if (option.key == "fp8") option.key = "fp8-format";  // an earlier spelling
    if (option.key == "fp4") option.key = "fp4-format";
  }
  Settings s("Megatron-LM", std::move(options));
  std::string base = megatron_base(s);
  const bool fp4 = s.text("fp4-format").has_value();
  s.word("fp4-recipe", "nvfp4", {"nvfp4"});
  const bool old = s.is_set("fp8-hybrid") || s.has("fp8-e4m3");
  Recipe recipe;
  if (fp4) {
    recipe = recipe_of_nvfp4(true, true, true);
  } else if (old || s.has("fp8-format")) {
    if (base.starts_with("16-mixed"))
      throw ConfigError("Megatron-LM: --fp8-format with --fp16: 8-bit products give bf16; write --bf16");
    recipe = megatron_fp8(s);
  }
  if (s.is_set("fp8-dot-product-attention"))
    s.refuse("fp8-dot-product-attention", "true",
             "attention multiplies in 16 bits under every policy; leave it out");
  if (s.text("moe-router-dtype").value_or("fp32") != "fp32")
    recipe.notes.emplace_back("--moe-router-dtype: the router is f32; a rule for *.mlp.gate lowers it");
  read_first_last(s, recipe);
  add_cast_note(base, recipe);
  for (std::string& note : ignored(s)) recipe.notes.push_back(std::move(note));
  return on(std::move(base), std::move(recipe));
}

// ---- torchtitan ------------------------------------------------------------------------------------------

std::string torchtitan_base(Settings& s) {
  const std::vector<std::string> dtypes = {"bfloat16", "float32"};
  const bool narrow = s.word("training.dtype", "float32", dtypes) == "bfloat16";
  const std::string compute = s.word("training.mixed_precision_param", "bfloat16", dtypes);
  if (narrow && compute == "float32")
    s.refuse("training.mixed_precision_param", compute,
             "weights in bf16 are multiplied in bf16 here; leave it out, or training.dtype");
  s.word("training.mixed_precision_reduce", "float32", {"float32"});
  if (narrow) return "bf16-true";
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
  const std::string converters(s.text("model.converters").value_or(""));
  Recipe recipe;
  if (float8 || mx) {
    recipe = recipe_of_torchao(float8 ? *float8 : *mx);
  } else if (converters.find("float8") != std::string::npos) {
    recipe = recipe_of_torchao("tensorwise");  // the default of versions with this option
  } else if (converters.find("mx") != std::string::npos) {
    recipe = recipe_of_torchao("mxfp8_cublas");
  }
  for (const std::string_view key :
       {"float8.enable_fsdp_float8_all_gather", "float8.precompute_float8_dynamic_scale_for_fsdp",
        "float8.force_recompute_fp8_weight_in_bwd", "mx.mxfp8_dim1_cast_kernel_choice"})
    s.text(key);  // how, not what
  if (base == "bf16-true")
    recipe.notes.emplace_back("--training.dtype bfloat16 also stores moments in bf16; here they are f32");
  add_cast_note(base, recipe);
  const std::string_view filtered = base == "32-true" ? "f32" : "bf16";
  bool keeps_head = recipe.fields.empty();
  for (const std::string_view key : {"float8.filter_fqns", "mx.filter_fqns"}) {
    for (const std::string_view name : split_words(s.text(key).value_or(""), ",[]\"' ")) {
      if (name == "auto_filter_small_kn") {
        recipe.notes.emplace_back("auto_filter_small_kn is not read: it depends on the speed of a card");
      } else if (name == "output") {
        keeps_head = true;
      } else {
        recipe.rules.push_back(fmt::format("*{}*: compute={}", translated_scope(name), filtered));
      }
    }
  }
  if (!keeps_head)
    recipe.notes.emplace_back(
        "the head has no scales here; there a recipe includes it without filter_fqns output");
  for (std::string& note : ignored(s)) recipe.notes.push_back(std::move(note));
  return on(std::move(base), std::move(recipe));
}

bool is_torchtitans(std::string_view key) {
  return key.starts_with("quantize.linear.") || key.starts_with("training.mixed_precision_") ||
         key == "training.dtype" || key == "model.converters" || key.starts_with("float8.") ||
         key.starts_with("mx.");
}

bool is_megatrons(std::string_view key) {
  constexpr std::string_view kKeys[] = {"bf16",       "fp16",       "fp8-format", "fp8-recipe", "fp8",
                                        "fp8-hybrid", "fp4-format", "fp8-e4m3",   "fp4"};
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
