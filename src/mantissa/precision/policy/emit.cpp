#include "mantissa/precision/policy/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/rule.h"

namespace mantissa::precision {
namespace {

/// The settings of a system, and a spelling that Policy::parse reads as what they mean.
struct Settings {
  std::string text, spelling;
};

bool has_rule(const Policy& policy, std::string_view text) {
  return std::ranges::find(policy.rules(), parse_rule(text, "")) != policy.rules().end();
}

bool has_wide_gradients(const Policy& policy) {
  return has_rule(policy, "*: operand=gradient compute=mxfp8-e5m2");
}
bool has_plain_weight_gradients(const Policy& policy) {
  return has_rule(policy, "*: op=matmul.dw compute=bf16");
}

std::string_view computes(const Policy& policy) {
  return (*policy.fields().compute)->name;
}
bool has_tensor_scales(const Policy& policy) {
  return (*policy.fields().compute)->scaled == Scaled::tensor;
}
bool is_mxfp8(const Policy& policy) {
  return computes(policy) == "mxfp8";
}
bool is_nvfp4(const Policy& policy) {
  return computes(policy) == "nvfp4";
}
bool is_hybrid(const Policy& policy) {
  return computes(policy).starts_with("fp8-hybrid") || (is_mxfp8(policy) && has_wide_gradients(policy));
}
bool is_current(const Policy& policy) {
  return policy.fields().scaling == Scaling::current;
}

/// Returns the 16-bit format in which the policy keeps activations, or "" under f32.
std::string_view width(const Policy& policy) {
  const Scalar stored = (*policy.fields().compute)->stored;
  return stored == Scalar::bf16 ? "bf16" : stored == Scalar::f16 ? "f16" : "";
}

// ---- Transformer Engine ----------------------------------------------------------------------------------

std::string recipe_of(const Policy& policy) {
  const Fields& f = policy.fields();
  const std::string_view format = is_hybrid(policy) ? "fp8_format=Format.HYBRID" : "fp8_format=Format.E4M3";
  if (has_tensor_scales(policy) && is_current(policy)) return fmt::format("Float8CurrentScaling({})", format);
  if (has_tensor_scales(policy))
    return fmt::format("DelayedScaling(margin={}, {}, amax_history_len={}, amax_compute_algo=\"max\")",
                       *f.scale_margin, format, *f.amax_history);
  if (is_mxfp8(policy) && f.weight_block == WeightBlock::square_128)
    return fmt::format("Float8BlockScaling({}{})", format,
                       f.scale_rounding == ScaleRounding::none ? ", use_f32_scales=True" : "");
  if (is_mxfp8(policy))
    return fmt::format("MXFP8BlockScaling({}{})", format,
                       f.weight_block == WeightBlock::square_32 ? ", enable_2d_quantization=True" : "");
  if (!is_nvfp4(policy)) return "";
  std::vector<std::string> off;
  if (f.hadamard == Hadamard::none) off.emplace_back("disable_rht=True");
  if (f.gradient_rounding != Rounding::stochastic) off.emplace_back("disable_stochastic_rounding=True");
  if (f.weight_block != WeightBlock::square_16) off.emplace_back("disable_2d_quantization=True");
  return fmt::format("NVFP4BlockScaling({})", fmt::join(off, ", "));
}

Settings transformer_engine(const Policy& policy) {
  const std::string recipe = recipe_of(policy);
  const std::string_view half = width(policy);
  if (recipe.empty()) {
    const std::string dtype = half.empty() ? "float32" : half == "f16" ? "float16" : "bfloat16";
    std::string text = fmt::format(
        "# Transformer Engine has no recipe for this; torch alone:\ntorch.autocast(\"cuda\", dtype=torch.{})\n",
        dtype);
    if (half != "f16") return {text, half.empty() ? "32-true" : "bf16-mixed"};
    const LossScale scale = policy.loss_scale();
    if (scale.kind == LossScale::Kind::dynamic)
      text += fmt::format("torch.amp.GradScaler(\"cuda\", init_scale={})\n", scale.value);
    const bool none = scale.kind != LossScale::Kind::dynamic;
    return {text, fmt::format("16-mixed loss_scale={}", none ? "none" : scale.str())};
  }

  const std::string name = recipe.substr(0, recipe.find('('));
  return {fmt::format("from transformer_engine.common.recipe import {}{}\n\nrecipe = {}\n",
                      recipe.find("Format.") == std::string::npos ? "" : "Format, ", name, recipe),
          recipe};
}

// ---- torchtitan, Megatron-LM -----------------------------------------------------------------------------

/// Joins options as the lines of one shell command.
Settings options_line(const std::vector<std::string>& options) {
  if (options.empty()) return {"", "32-true"};
  return {fmt::format("{}\n", fmt::join(options, " \\\n")), fmt::format("{}", fmt::join(options, " "))};
}

Settings torchtitan(const Policy& policy) {
  const Fields& f = policy.fields();
  std::vector<std::string> options;
  if (f.params == Scalar::bf16) options.emplace_back("--training.dtype bfloat16");
  options.push_back(
      fmt::format("--training.mixed_precision_param {}", width(policy).empty() ? "float32" : "bfloat16"));
  const bool rceil = f.scale_rounding == ScaleRounding::rceil;
  if (has_tensor_scales(policy) || is_mxfp8(policy)) {
    const bool float8 = has_tensor_scales(policy) || f.weight_block == WeightBlock::whole;
    options.push_back(fmt::format("--model.converters quantize.linear.{}", float8 ? "float8" : "mx"));
    // A recipe includes the head unless it is filtered.
    options.push_back(fmt::format("--quantize.linear.{}.filter_fqns output", float8 ? "float8" : "mx"));
  }
  if (has_tensor_scales(policy)) {
    options.emplace_back("--quantize.linear.float8.recipe_name tensorwise");
  } else if (is_mxfp8(policy) && f.weight_block == WeightBlock::whole) {
    options.push_back(fmt::format("--quantize.linear.float8.recipe_name {}",
                                  has_plain_weight_gradients(policy) ? "rowwise_with_gw_hp" : "rowwise"));
  } else if (is_mxfp8(policy) && has_plain_weight_gradients(policy)) {
    options.emplace_back("--quantize.linear.mx.recipe_name mxfp8_rceil_wgrad_with_hp");
  } else if (is_mxfp8(policy)) {
    options.push_back(
        fmt::format("--quantize.linear.mx.recipe_name {}", rceil ? "mxfp8_rceil" : "mxfp8_cublas"));
  }
  return options_line(options);
}

Settings megatron(const Policy& policy) {
  const Fields& f = policy.fields();
  std::vector<std::string> options;
  const std::string_view half = width(policy);
  if (!half.empty()) options.emplace_back(half == "bf16" ? "--bf16" : "--fp16");
  if (!half.empty() && f.residual == Scalar::f32) options.emplace_back("--fp32-residual-connection");
  if (f.reduce == Scalar::bf16 || f.grads == Scalar::bf16) options.emplace_back("--grad-reduce-in-bf16");
  const LossScale scale = policy.loss_scale();
  if (scale.kind == LossScale::Kind::constant) options.push_back(fmt::format("--loss-scale {}", scale.value));
  if (scale.kind == LossScale::Kind::dynamic)
    options.push_back(fmt::format("--initial-loss-scale {}", scale.value));
  const auto fp8 = [&](std::string_view recipe) {
    options.push_back(fmt::format("--fp8-format {}", is_hybrid(policy) ? "hybrid" : "e4m3"));
    options.push_back(fmt::format("--fp8-recipe {}", recipe));
  };
  if (has_tensor_scales(policy) && half != "f16") {
    fp8(is_current(policy) ? "tensorwise" : "delayed");
    if (!is_current(policy)) {
      options.push_back(fmt::format("--fp8-amax-history-len {}", *f.amax_history));
      options.emplace_back("--fp8-amax-compute-algo max");
      if (*f.scale_margin != 0) options.push_back(fmt::format("--fp8-margin {}", *f.scale_margin));
    }
  } else if (is_mxfp8(policy)) {
    fp8(f.weight_block == WeightBlock::square_128 ? "blockwise" : "mxfp8");
  } else if (is_nvfp4(policy)) {
    options.emplace_back("--fp4-format e2m1");
    options.emplace_back("--fp4-recipe nvfp4");
  }
  if (((has_tensor_scales(policy) && half != "f16") || is_mxfp8(policy)) &&
      has_plain_weight_gradients(policy))
    options.emplace_back("--no-fp8-wgrad");
  return options_line(options);
}

// ---- DeepSpeed -------------------------------------------------------------------------------------------

Settings deepspeed(const Policy& policy) {
  const Fields& f = policy.fields();
  const std::string_view half = width(policy);
  std::vector<std::string> blocks;
  if (half == "bf16") blocks.emplace_back("\"bf16\": {\"enabled\": true}");
  if (half == "f16") {
    const LossScale scale = policy.loss_scale();
    const bool dynamic = scale.kind == LossScale::Kind::dynamic;
    blocks.push_back(fmt::format(
        "\"fp16\": {{\"enabled\": true, {}}}",
        dynamic ? fmt::format("\"loss_scale\": 0, \"initial_scale_power\": {}",
                              std::lround(std::log2(scale.value)))
                : fmt::format("\"loss_scale\": {}", scale.kind == LossScale::Kind::none ? 1 : scale.value)));
  }
  const auto dtype = [](Scalar s) { return s == Scalar::bf16 ? "bf16" : s == Scalar::f16 ? "fp16" : "fp32"; };
  if (!half.empty()) {
    blocks.push_back(fmt::format("\"data_types\": {{\"grad_accum_dtype\": \"{}\"}}", dtype(*f.grads)));
    blocks.push_back(fmt::format("\"communication_data_type\": \"{}\"", dtype(*f.reduce)));
  }
  const std::string text =
      blocks.empty() ? "{}\n" : fmt::format("{{\n  {}\n}}\n", fmt::join(blocks, ",\n  "));
  return {text, compat::parse_deepspeed(text, "DeepSpeed").policy_line().value_or("32-true")};
}

struct System {
  std::string_view name;
  Settings (*settings)(const Policy&);
};
constexpr std::array kSystems = {System{"te", transformer_engine}, System{"torchtitan", torchtitan},
                                 System{"megatron", megatron}, System{"deepspeed", deepspeed}};

}  // namespace

Emitted emitted(const Policy& policy, std::string_view system) {
  const auto* found = std::ranges::find(kSystems, lowered(system), &System::name);
  if (found == kSystems.end()) {
    throw ConfigError("--emit {}: unknown system{} (systems: {})", in_quotes(system),
                      did_you_mean(system, emitted_systems()), list_of(emitted_systems()));
  }
  const Settings settings = found->settings(policy);
  Emitted out{settings.text, {}};
  const Policy theirs = Policy::parse(settings.spelling, &out.missing);
  for (const Field& field : field_table()) {
    const std::string ours = field_text(policy.fields(), field), other = field_text(theirs.fields(), field);
    if (ours != other) out.missing.push_back(fmt::format("{}={}; theirs is {}", field.name, ours, other));
  }
  for (const Rule& rule : policy.rules()) {
    if (std::ranges::find(theirs.rules(), rule) == theirs.rules().end())
      out.missing.push_back(fmt::format("the rule \"{}\"", rule.str()));
  }
  for (const Rule& rule : theirs.rules()) {
    if (std::ranges::find(policy.rules(), rule) == policy.rules().end())
      out.missing.push_back(fmt::format("theirs adds the rule \"{}\"", rule.str()));
  }
  return out;
}

std::vector<std::string> emitted_systems() {
  return names_of(kSystems, &System::name);
}

}  // namespace mantissa::precision
