#include "mantissa/precision/compat/foreign_recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/compat/foreign_arguments.h"

namespace mantissa::compat {

Foreign on(std::string base, Recipe recipe) {
  if (!recipe.fields.empty()) base += " " + recipe.fields;
  return {std::move(base), std::move(recipe.notes), std::move(recipe.rules)};
}

Recipe recipe_of_tensors(bool hybrid, std::string_view scaling) {
  return {fmt::format("compute={}{}", hybrid ? "fp8-hybrid" : "e4m3", scaling)};
}

Recipe recipe_of_mxfp8(bool hybrid, std::string_view shared, std::string_view rule) {
  Recipe recipe{fmt::format("compute=mxfp8 scale_rounding={}", rule)};
  if (!shared.empty()) recipe.fields += fmt::format(" {}", shared);
  if (hybrid) recipe.rules.emplace_back("*: operand=gradient compute=mxfp8-e5m2");
  return recipe;
}

Recipe recipe_of_nvfp4(bool squares, bool stochastic, bool hadamard) {
  return {fmt::format("compute=nvfp4{}{}{}", squares ? " weight_block=16x16" : "",
                      stochastic ? " gradient_rounding=stochastic" : "", hadamard ? " hadamard=16" : "")};
}

namespace {

// ---- torchao, torchtitan ---------------------------------------------------------------------------------

struct Named {
  std::string_view word;
  Recipe (*recipe)();
};

Recipe rowwise() {
  return recipe_of_mxfp8(false, "weight_block=row activation_block=row");
}

constexpr Named kTorchao[] = {
    {"tensorwise", [] { return recipe_of_tensors(true, " scaling=current"); }},
    {"rowwise", rowwise},
    {"rowwise_with_gw_hp",
     [] {
       Recipe recipe = rowwise();
       recipe.rules = {"*: op=matmul.dx operand=weight compute=e4m3 scaling=current",
                       std::string(kWeightGradientsInBf16)};
       recipe.notes = {
           "the scale of the weight in gradients of inputs is f32; torchao rounds it down to a power of two"};
       return recipe;
     }},
    {"fp8_rowwise", rowwise},
    {"mxfp8_rceil", [] { return recipe_of_mxfp8(false); }},
    {"mxfp8_emulated_rceil", [] { return recipe_of_mxfp8(false); }},
    {"mxfp8_cublas_rceil", [] { return recipe_of_mxfp8(false); }},
    {"mxfp8_cublas", [] { return Recipe{"compute=mxfp8"}; }},
    {"mxfp8_emulated", [] { return Recipe{"compute=mxfp8"}; }},
    {"mxfp8_rceil_wgrad_with_hp",
     [] {
       Recipe recipe = recipe_of_mxfp8(false);
       recipe.rules.emplace_back(kWeightGradientsInBf16);
       return recipe;
     }},
};

const Named* torchao(std::string_view word) {
  const std::string wanted = lowered(word);
  std::string_view name = wanted;
  // "float8_rowwise", as torchao's own benchmarks write it.
  if (name.starts_with("float8_")) name.remove_prefix(7);
  const auto* found = std::ranges::find(kTorchao, name, &Named::word);
  return found == std::end(kTorchao) ? nullptr : found;
}

}  // namespace

Recipe recipe_of_torchao(std::string_view word) {
  if (const Named* found = torchao(word)) return found->recipe();
  const std::vector<std::string> names = names_of(kTorchao, &Named::word);
  throw ConfigError("torchao has no recipe {}{} (recipes: {})", in_quotes(word),
                    did_you_mean(lowered(word), names), list_of(names));
}

namespace {

// ---- Transformer Engine ----------------------------------------------------------------------------------

/// Reads what all recipes have. Returns true for the hybrid format.
bool is_hybrid(Settings& s, bool usual) {
  for (const std::string_view key : {"fp8_dpa", "fp8_mha"}) {
    if (s.is_set(key))
      s.refuse(key, "True", "attention multiplies in 16 bits under every policy; leave it out");
  }
  return s.word("fp8_format", usual ? "hybrid" : "e4m3", {"e4m3", "hybrid"}) == "hybrid";
}

/// Adds what backward_override asks for.
Recipe with_backward(Settings& s, Recipe recipe) {
  const std::string kind = s.word("backward_override", "none", {"high_precision", "dequantized"});
  if (kind == "dequantized")
    s.refuse("backward_override", kind,
             "no policy multiplies gradients by decoded operands in 16 bits; write "
             "backward_override=\"high_precision\", or leave it out");
  if (kind == "high_precision") recipe.rules = {"*: pass=backward compute=bf16"};
  return recipe;
}

Recipe delayed(Settings& s) {
  const bool hybrid = is_hybrid(s, true);
  std::string more;
  if (const std::int64_t margin = s.whole("margin", 0); margin != 0)
    more += fmt::format(" scale_margin={}", margin);
  const std::int64_t history = s.whole("amax_history_len", 1024);
  const bool recent = s.word("amax_compute_algo", "max", {"max", "most_recent"}) == "most_recent";
  if (const std::int64_t steps = recent ? 1 : history; steps != 1024)
    more += fmt::format(" amax_history={}", steps);
  s.is_set("reduce_amax", true);  // all rows of a step set its magnitudes
  if (const std::optional<std::string_view> kind = s.text("backward_override"))
    s.refuse("backward_override", *kind, "DelayedScaling has none; leave it out");
  return recipe_of_tensors(hybrid, more);
}

Recipe current(Settings& s) {
  const bool hybrid = is_hybrid(s, true);
  if (s.is_set("use_power_2_scales"))
    s.refuse("use_power_2_scales", "True", "scales of tensors are f32; leave it out");
  return with_backward(s, recipe_of_tensors(hybrid, " scaling=current"));
}

Recipe mx_blocks(Settings& s) {
  const bool hybrid = is_hybrid(s, false);
  if (s.whole("margin", 0) != 0) s.refuse("margin", "1", "scales of blocks have no margin; leave it out");
  return with_backward(
      s, recipe_of_mxfp8(hybrid, s.is_set("enable_2d_quantization") ? "weight_block=32x32" : ""));
}

Recipe float8_blocks(Settings& s) {
  const bool hybrid = is_hybrid(s, false);
  const bool f32_scales = s.is_set("use_f32_scales");
  for (const auto& [key, usual] :
       {std::pair{"x_block_scaling_dim", 1}, {"w_block_scaling_dim", 2}, {"grad_block_scaling_dim", 1}}) {
    if (const std::int64_t said = s.whole(key, usual); said != usual)
      s.refuse(key, std::to_string(said), fmt::format("only its default, {}, is supported", usual));
  }
  return with_backward(s, recipe_of_mxfp8(hybrid, kSquaresOf128, f32_scales ? "none" : "rceil"));
}

Recipe nvfp4_blocks(Settings& s) {
  s.word("fp4_format", "e2m1", {"e2m1"});
  if (is_hybrid(s, false)) s.refuse("fp8_format", "HYBRID", "NVFP4BlockScaling has E4M3; leave it out");
  if (s.is_set("row_scaled_activation"))
    s.refuse("row_scaled_activation", "True", "nvfp4 has one f32 scale for a tensor; leave it out");
  if (const std::string kind = s.word("nvfp4_4over6", "none", {"none", "weights", "activations", "all"});
      kind != "none")
    s.refuse("nvfp4_4over6", kind, "blocks are scaled to 6 alone; leave it out");
  const bool hadamard = !s.is_set("disable_rht"), stochastic = !s.is_set("disable_stochastic_rounding"),
             squares = !s.is_set("disable_2d_quantization");
  return with_backward(s, recipe_of_nvfp4(squares, stochastic, hadamard));
}

struct Engine {
  std::string_view name;
  Recipe (*read)(Settings&);
};
constexpr Engine kTransformerEngine[] = {{"DelayedScaling", delayed},
                                         {"Float8CurrentScaling", current},
                                         {"MXFP8BlockScaling", mx_blocks},
                                         {"Float8BlockScaling", float8_blocks},
                                         {"NVFP4BlockScaling", nvfp4_blocks}};

// ---- torchao's configurations ----------------------------------------------------------------------------

Recipe float8_linear(Settings& s) {
  if (s.is_set("round_scales_to_power_of_2"))
    s.refuse("round_scales_to_power_of_2", "True", "scales of tensors are f32; leave it out");
  for (const std::string_view key :  // where and how its kernels run
       {"enable_fsdp_float8_all_gather", "pad_inner_dim", "emulate", "force_recompute_fp8_weight_in_bwd"})
    s.is_set(key);
  return recipe_of_tensors(true, " scaling=current");
}

Recipe mxfp8_op(Settings& s) {
  s.text("kernel_preference");
  s.is_set("pad_token_groups_for_grouped_mm");
  s.word("out_dtype", "bfloat16", {"bfloat16"});
  const std::string rule = s.word("scale_calculation_mode", "rceil", {"floor", "ceil", "even", "rceil"});
  Recipe recipe = recipe_of_mxfp8(false, {}, rule);
  if (s.is_set("wgrad_with_hp")) recipe.rules.emplace_back(kWeightGradientsInBf16);
  return recipe;
}

constexpr Engine kTorchaoConfigs[] = {{"Float8LinearConfig", float8_linear},
                                      {"MXFP8TrainingOpConfig", mxfp8_op}};

const Engine* find_call(std::string_view function) {
  for (const std::span<const Engine> of :
       {std::span<const Engine>(kTransformerEngine), std::span<const Engine>(kTorchaoConfigs)}) {
    if (const auto found = std::ranges::find(of, function, &Engine::name); found != of.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

std::optional<Foreign> recipe_of_call(std::string_view function, std::string_view arguments) {
  if (function == "from_recipe_name") return on("bf16-mixed", recipe_of_torchao(unquoted(arguments)));
  const Engine* found = find_call(function);
  if (found == nullptr) return std::nullopt;
  Settings settings(function, arguments_of(arguments, ",\r\n"));
  Recipe recipe = found->read(settings);
  settings.refuse_rest();
  return on("bf16-mixed", std::move(recipe));
}

std::optional<Foreign> recipe_of_word(std::string_view word) {
  if (const Named* found = torchao(word)) return on("bf16-mixed", found->recipe());
  return recipe_of_call(word, "");
}

std::vector<std::string> recipe_words() {
  std::vector<std::string> words = names_of(kTransformerEngine, &Engine::name);
  for (const Engine& config : kTorchaoConfigs) words.emplace_back(config.name);
  for (const Named& named : kTorchao) words.emplace_back(named.word);
  return words;
}

}  // namespace mantissa::compat
