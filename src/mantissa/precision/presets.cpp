#include "mantissa/precision/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/base/error.h"
#include "mantissa/precision/words.h"

namespace mantissa::precision {
namespace {

/// Every field in `format`, and what numerics.md says otherwise: models are written in f32.
Fields uniform(Scalar format) {
  Fields f;
  f.params = f.compute = f.accumulate = f.residual = f.output = f.grads = f.reduce = f.optimizer = f.kv =
      format;
  f.checkpoint = Scalar::f32;
  f.output_via_compute = false;
  f.accumulate_block = 0;
  f.rounding = Rounding::nearest;
  f.kahan = f.saturate = f.flush_subnormals = false;
  f.loss_scale = LossScale{};
  return f;
}

/// f32 masters, gradients, moments and residual stream; matrix operands and activations in `compute`.
Fields mixed(Scalar compute) {
  Fields f = uniform(Scalar::f32);
  f.compute = f.kv = compute;
  return f;
}

/// The same with a dynamic loss scale, for a format whose smallest values gradients fall below.
Fields scaled(Fields fields) {
  fields.loss_scale = LossScale{LossScale::Kind::dynamic, 65536};
  return fields;
}

/// Weights, gradients and activations in `format`; sums, moments and outputs in f32.
Fields narrow(Scalar format) {
  Fields f = uniform(Scalar::f32);
  f.params = f.compute = f.residual = f.grads = f.kv = format;
  return f;
}

/// A name of docs/numerics.md that this version reads and does not train.
struct Later {
  std::string_view name;
  std::vector<std::string_view> aliases;
};

std::span<const Later> later_presets() {
  static const std::array<Later, 5> table = {{
      {"tf32", {}},
      {"bf16-matmul", {}},
      {"bf16-matmul-x3", {}},
      {"bf16-matmul-x6", {}},
      {"fp8-hybrid", {"transformer-engine", "fp8"}},
  }};
  return table;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace

std::span<const Preset> presets() {
  static const std::array<Preset, 6> table = {{
      {"64-true", {"64", "fp64", "f64", "float64", "torch.float64", "double"}, uniform(Scalar::f64)},
      {"32-true", {"32", "fp32", "f32", "float32", "torch.float32", "float", "full"}, uniform(Scalar::f32)},
      {"bf16-mixed", {"bf16", "bfloat16", "torch.bfloat16"}, mixed(Scalar::bf16)},
      {"16-mixed",
       {"16", "fp16", "f16", "float16", "torch.float16", "half", "fp16-mixed"},
       scaled(mixed(Scalar::f16))},
      {"bf16-true", {}, narrow(Scalar::bf16)},
      {"16-true", {"fp16-true"}, narrow(Scalar::f16)},
  }};
  return table;
}

std::string trainable() {
  return "this version trains 64-true, 32-true, bf16-mixed, 16-mixed, bf16-true, 16-true, and policy lines "
         "whose compute is f32, tf32, bf16 or f16";
}

const Preset& find_preset(std::string_view name) {
  const std::string wanted = lowered(name);
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == wanted || std::ranges::find(preset.aliases, wanted) != preset.aliases.end())
      return preset;
    names.push_back(preset.name);
  }
  for (const Later& later : later_presets()) {
    if (later.name == wanted || std::ranges::find(later.aliases, wanted) != later.aliases.end()) {
      throw ConfigError(fmt::format("preset \"{}\" is not available: {}", later.name, trainable()));
    }
  }
  throw ConfigError(fmt::format("no preset is called {}{} (presets: {})", quoted(name),
                                did_you_mean(wanted, names), list_of(names)));
}

const Preset* preset_of(const Fields& fields) {
  const auto scales = [](const Fields& f) { return f.loss_scale->kind != LossScale::Kind::none; };
  for (const Preset& preset : presets()) {
    Fields same = fields;
    // A preset with a loss scale keeps its name under another one.
    if (scales(preset.fields) && scales(fields)) same.loss_scale = preset.fields.loss_scale;
    if (same == preset.fields) return &preset;
  }
  return nullptr;
}

}  // namespace mantissa::precision
