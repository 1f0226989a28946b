#include "mantissa/precision/policy/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/precision/compat/foreign.h"

namespace mantissa::precision {
namespace {

/// Every field in `format`, except that models are written in f32 (docs/numerics.md).
Fields uniform(Scalar format) {
  Fields f;
  f.compute = format;
  f.params = f.residual = f.output = f.grads = f.reduce = f.kv = f.state = format;
  f.optimizer = format;
  f.accumulate = format;
  f.checkpoint = Scalar::f32;
  f.output_via_compute = false;
  f.accumulate_block = 0;
  f.accumulate_order = AccumulateOrder::by_factors;
  f.rounding = f.reduce_rounding = Rounding::nearest;
  f.kahan = f.saturate = f.flush_subnormals = false;
  f.scaling = Scaling::automatic;
  f.scale_margin = 0;
  f.amax_history = 1024;
  f.scale_rounding = ScaleRounding::floor;
  f.gradient_rounding = Rounding::nearest;
  f.weight_block = WeightBlock::automatic;
  f.activation_block = ActivationBlock::automatic;
  f.hadamard = Hadamard::none;
  f.weights = WeightFormat::none;
  f.norm_cast = NormCast::after_gain;
  f.loss_scale = LossScale{};
  return f;
}

/// f32 masters, gradients, moments and residual stream; matrix operands and activations in `compute`.
Fields mixed(Scalar compute) {
  Fields f = uniform(Scalar::f32);
  f.compute = compute;
  f.kv = compute;
  return f;
}

/// f32 everywhere except for product operands.
Fields multiplied(const char* compute) {
  Fields f = uniform(Scalar::f32);
  f.compute = Compute::parse(compute);
  return f;
}

/// bf16-mixed with 8-bit operands in Linear ops.
Fields hybrid() {
  Fields f = mixed(Scalar::bf16);
  f.compute = Compute::parse("fp8-hybrid");
  return f;
}

/// Adds a dynamic loss scale, for formats in which small gradients underflow.
Fields scaled(Fields fields) {
  fields.loss_scale = LossScale{LossScale::Kind::dynamic, 65536};
  return fields;
}

/// Weights, gradients and activations in `format`; sums, moments and outputs in f32.
Fields narrow(Scalar format) {
  Fields f = uniform(Scalar::f32);
  f.compute = format;
  f.params = f.residual = f.grads = f.kv = format;
  return f;
}

}  // namespace

std::span<const Preset> presets() {
  static const std::array<Preset, 11> table = {{
      {"64-true",
       {"64", "fp64", "f64", "float64", "torch.float64", "double"},
       uniform(Scalar::f64),
       "everything in f64: the reference for what f32 rounds"},
      {"32-true",
       {"32", "fp32", "f32", "float32", "torch.float32", "float", "full"},
       uniform(Scalar::f32),
       "everything in f32: the reference for lower precisions"},
      {"tf32", {}, multiplied("tf32"), "f32, but operands of products round to tf32, as on NVIDIA GPUs"},
      {"bf16-matmul", {}, multiplied("bf16x1"), "f32, but operands of products round to bf16, as on a TPU"},
      {"bf16-matmul-x3", {}, multiplied("bf16x3"), "f32, with operands as two bf16 parts: 3 products"},
      {"bf16-matmul-x6", {}, multiplied("bf16x6"), "f32, with operands as three bf16 parts: 6 products"},
      {"bf16-mixed",
       {"bf16", "bfloat16", "torch.bfloat16"},
       mixed(Scalar::bf16),
       "bf16 operands and activations; weights, gradients and moments in f32"},
      {"16-mixed",
       {"16", "fp16", "f16", "float16", "torch.float16", "half", "fp16-mixed"},
       scaled(mixed(Scalar::f16)),
       "f16 operands and activations with a loss scale; the rest in f32"},
      {"bf16-true",
       {},
       narrow(Scalar::bf16),
       "weights, gradients and activations in bf16; small updates can be lost"},
      {"16-true",
       {"fp16-true"},
       narrow(Scalar::f16),
       "weights, gradients and activations in f16, without a loss scale"},
      {"fp8-hybrid",
       {"transformer-engine", "fp8"},
       hybrid(),
       "bf16-mixed, but 8-bit operands in linear layers: e4m3, gradients e5m2"},
  }};
  return table;
}

std::string trainable() {
  return fmt::format("presets: {}; or a policy line such as \"bf16-mixed residual=bf16\"",
                     list_of(names_of(presets(), &Preset::name)));
}

const Preset& find_preset(std::string_view name) {
  const std::string wanted = lowered(name);
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == wanted || std::ranges::find(preset.aliases, wanted) != preset.aliases.end())
      return preset;
    names.push_back(preset.name);
  }
  std::vector<std::string> known = names;
  for (const Preset& preset : presets())
    known.insert(known.end(), preset.aliases.begin(), preset.aliases.end());
  for (std::string& word : compat::foreign_words()) known.push_back(std::move(word));
  const std::string_view several = formats_of_width(wanted);
  if (!several.empty()) {
    throw ConfigError(
        "{} is not a preset; as a product format it is ambiguous: {}; write for example "
        "\"bf16-mixed compute={}\"",
        in_quotes(name), several, several.substr(0, several.find(' ')));
  }
  const bool eight_bits = wanted == "e4m3" || wanted == "e5m2";
  if (eight_bits || parse_block_format(wanted)) {
    throw ConfigError(
        "{} is not a preset, but a format of products; write for example \"bf16-mixed compute={}\"",
        in_quotes(name), wanted);
  }
  throw ConfigError("no preset is called {}{} (presets: {})", in_quotes(name), did_you_mean(wanted, known),
                    list_of(names));
}

const Preset* preset_of(const Fields& fields) {
  const auto scales = [](const Fields& f) { return f.loss_scale->kind != LossScale::Kind::none; };
  for (const Preset& preset : presets()) {
    Fields same = fields;
    // A preset with a loss scale keeps its name when only the scale changes.
    if (scales(preset.fields) && scales(fields)) same.loss_scale = preset.fields.loss_scale;
    if (same == preset.fields) return &preset;
  }
  return nullptr;
}

}  // namespace mantissa::precision
