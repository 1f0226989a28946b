// An audit as a run with planted faults would give it: f16 overflow in one layer, bf16 updates that are lost,
// saturation of e4m3.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>

#include "mantissa/lab/audit/audit.h"

namespace mantissa::test {

using lab::Audit, lab::Finding, lab::FirstNonFinite, lab::ParameterSeries, lab::ValueSeries, lab::ValueStep;

inline Binades bell(double centre, double width, double count) {
  Binades out;
  for (int e = Binades::kLeast; e <= Binades::kMost; ++e) {
    const double z = (e - centre) / width;
    out.at(e) = static_cast<std::uint64_t>(count * std::exp(-z * z / 2) * (e < centre ? 1 : std::exp(-z)));
  }
  return out;
}

/// Returns `before` as a format stores it: what it cannot hold is gone.
inline Binades held(Binades before, Scalar format) {
  const ScalarTraits& t = traits(format);
  for (int e = Binades::kLeast; e <= Binades::kMost; ++e)
    if (e < t.min_normal_exp - t.mantissa_bits || std::ldexp(1.0, e) > t.max_finite) before.at(e) = 0;
  return before;
}

struct SyntheticOp {
  const char *module, *op;
  double forward, backward;  // log2 of the rms
  Scalar format;
};

inline constexpr SyntheticOp kSyntheticOps[] = {
    {"input_layernorm", "rmsnorm", 0, -14, Scalar::f16},
    {"self_attn.q_proj", "matmul", 1, -16, Scalar::e4m3},
    {"self_attn.k_proj", "matmul", 1, -16, Scalar::e4m3},
    {"self_attn.v_proj", "matmul", -1, -15, Scalar::f16},
    {"self_attn", "rope", 1, -16, Scalar::f16},
    {"self_attn", "attention", -2, -15, Scalar::f16},
    {"self_attn.o_proj", "matmul", -2, -14, Scalar::f16},
    {"post_attention_layernorm", "rmsnorm", 0, -14, Scalar::f16},
    {"mlp.gate_proj", "matmul", 1, -17, Scalar::f16},
    {"mlp.up_proj", "matmul", 1, -17, Scalar::f16},
    {"mlp", "swiglu", 1, -16, Scalar::f16},
    {"mlp.down_proj", "matmul", 2, -14, Scalar::f16},
};

struct SyntheticShape {
  int layers = 24, steps = 20;
  bool stops = true;
};

inline ValueSeries synthetic_value(const std::string& scope, const SyntheticOp& op, bool forward, int layer,
                                   const SyntheticShape& shape, std::mt19937& random) {
  std::normal_distribution<double> noise;
  ValueSeries v{.scope = scope,
                .op = op.op,
                .pass = forward ? "forward" : "backward",
                .name = "",
                .format = op.format,
                .decided_by = "16-mixed",
                .steps = {}};
  const double unit = std::exp2(-traits(op.format).mantissa_bits - 1);
  const bool outlier = layer == 5 && forward && std::string(op.module).starts_with("mlp") &&
                       std::string(op.module) != "mlp.gate_proj";
  const double centre =
      (forward ? op.forward + 0.04 * layer : op.backward - 0.12 * (shape.layers - layer)) + (outlier ? 9 : 0);
  for (int s = 1; s <= shape.steps; ++s) {
    ValueStep step{.step = s};
    step.rms = std::exp2(centre + 0.1 * noise(random));
    step.absmax = std::min(step.rms * 22, traits(op.format).max_finite);
    step.absmin = step.rms * 1e-6;
    step.mean = step.rms * 0.01 * noise(random);
    step.error_rms = unit * (0.55 + 0.05 * noise(random));
    step.error_mean = unit * 2e-3 * noise(random);
    if (std::string(op.op) == "attention" && layer >= 14) step.error_mean = -unit * 0.9 * (0.5 + s / 20.0);
    step.flushed = forward ? 0 : std::clamp(std::exp2(-centre - 24) * (1 + 0.2 * noise(random)), 0.0, 0.9);
    if (*step.flushed < 1e-6) step.flushed = 0;
    step.overflowed = 0;
    if (op.format == Scalar::e4m3 && forward) step.saturated = 0.004 * (layer % 7 == 3) * (1 + 0.3 * s);
    if (outlier && s >= 12) {
      step.overflowed = 0.0008 * (s - 11);
      step.inf = *step.overflowed;
      step.absmax = traits(op.format).max_finite * 0.98;
    }
    v.steps.push_back(step);
  }
  v.before = bell(centre + (op.format == Scalar::e4m3 && forward ? 4 : 0), forward ? 2.4 : 3.5, 4e6);
  v.binades = held(v.before, op.format);
  return v;
}

inline ParameterSeries synthetic_parameter(const std::string& name, bool vector, const SyntheticShape& shape,
                                           std::mt19937& random) {
  std::normal_distribution<double> noise;
  ParameterSeries p{.name = name, .master = Scalar::bf16, .steps = {}};
  for (int s = 1; s <= shape.steps; ++s) {
    runtime::ParameterHealth h;
    h.name = name;
    h.elements = vector ? 896 : 896 * 4864;
    h.master = Scalar::bf16;
    h.vector = vector;
    h.updates_lost = vector ? 0.97 + 0.001 * s : std::clamp(0.3 + 0.05 * noise(random) - 0.01 * s, 0.0, 1.0);
    h.never_moved = vector ? 0.96 : 0.21 / s;
    h.grads_flushed = vector ? 0 : 2e-5 * s;
    h.grad_absmax = 0.002 * std::exp(noise(random));
    h.weight_absmax = vector ? 1.2 : 0.6;
    p.steps.emplace_back(s, h);
  }
  p.weights = bell(vector ? 0 : -6, vector ? 0.4 : 1.8, vector ? 896 : 4e6);
  p.gradients = bell(-18, 3, 4e6);
  return p;
}

inline plan::PlanRow synthetic_row(std::string scope, std::string op, std::string pass, std::string format) {
  return {.scope = std::move(scope),
          .op = std::move(op),
          .pass = std::move(pass),
          .stored = format,
          .multiplied = format == "f32" ? plan::kNoFormat : format,
          .accumulated = "f32",
          .order = "tile",
          .output = format,
          .rounded = "",
          .decided_by = "16-mixed",
          .kernel = ""};
}

inline std::vector<Finding> synthetic_findings() {
  return {
      {.kind = "overflow",
       .scope = "model.layers.5.mlp.down_proj",
       .op = "matmul",
       .pass = "forward",
       .step = 12,
       .rows = {3, 17},
       .share = 0.0008,
       .evidence = {{"absmax", 81234.0}, {"limit", 65504.0}, {"row", 17}, {"times_neighbours", 1500}},
       .rule = "model.layers.5.mlp.down_proj: compute=f32",
       .cure = Cure{{"--rule", "model.layers.5.mlp.down_proj: compute=f32"}, "", true},
       .text =
           "The result of down_proj in layer 5 is up to 8.1e4, but f16 ends at 65 504; row 17 of up_proj is "
           "1500 times as large as its neighbours.",
       .severity = 9},
      {.kind = "rounded_away",
       .scope = "model.layers.0.input_layernorm.weight",
       .op = "adamw",
       .pass = "update",
       .step = 1,
       .share = 0.97,
       .evidence = {{"updates_lost", 0.97}, {"lr", 1e-3}, {"spacing", 0.0078125}},
       .rule = "optimizer: params=f32",
       .cure = Cure{{"--set", "precision.params=f32"}, "", false},
       .text =
           "97 % of the updates to 49 norm gains were lost: the spacing of bf16 at 1.0 is 0.0078, and the "
           "learning rate is 1e-3.",
       .severity = 7},
      {.kind = "saturation",
       .scope = "model.layers.3.self_attn.q_proj",
       .op = "matmul",
       .pass = "forward",
       .step = 1,
       .share = 0.028,
       .evidence = {{"absmax", 448}, {"limit", 448}},
       .rule = {},
       .cure = {},
       .text = "2.8 % of the values of q_proj in layer 3 were clipped to 448, the largest value of e4m3.",
       .severity = 4},
      {.kind = "no_labels",
       .scope = "",
       .op = "",
       .pass = "forward",
       .step = 7,
       .rows = {4},
       .share = 0,
       .evidence = {},
       .rule = {},
       .cure = {},
       .text = "Row 4 of step 7 has no label, so it contributes nothing to the loss.",
       .severity = 2},
  };
}

/// Returns the audit of a run with `shape.layers` layers that was observed for `shape.steps` steps.
inline Audit synthetic_audit(const SyntheticShape& shape = {}) {
  std::mt19937 random(7);
  std::normal_distribution<double> noise;
  Audit a{.title = "run.toml under 16-mixed",
          .command = "mantissa audit run.toml --precision 16-mixed --steps 20",
          .run_command = "mantissa train run.toml --precision 16-mixed",
          .preset = "16-mixed",
          .policy =
              "params=bf16 compute=f16 accumulate=f32 residual=f32 output=f32 grads=f32 reduce=f32 "
              "optimizer=f32 kv=f16 checkpoint=f32 rounding=nearest loss_scale=dynamic:2^16",
          .model = "llama 494M",
          .verdict =
              "This run does not survive 16-mixed. From step 12 on, the down projection of layer 5 overflows "
              "in the forward pass, which no loss scale can cure: the scale is halved at every step until "
              "the run stops. Computing this one layer in f32 cures it. Besides, norm gains hardly move.",
          .observed = {},
          .points = {},
          .values = {},
          .weights = {},
          .plan = {},
          .findings = synthetic_findings(),
          .thresholds = {{"overflow_share", 1e-6},
                         {"underflow_share", 0.05},
                         {"updates_lost", 0.5},
                         {"bias", 1e-3}},
          .seconds = 48};
  a.steps = shape.steps;
  a.parameters = 494'032'768;
  double scale = 65536;
  for (int s = 1; s <= shape.steps; ++s) {
    a.observed.push_back(s);
    const bool skipped = shape.stops && s >= 12;
    a.points.push_back({.step = s,
                        .loss = skipped ? std::nan("") : 10.4 * std::exp(-0.06 * s) + 0.05 * noise(random),
                        .grad_norm = skipped ? std::nan("") : 3.1 * std::exp(-0.05 * s) + 0.1 * noise(random),
                        .lr = 3e-4,
                        .loss_scale = scale,
                        .skipped = skipped,
                        .overflow = skipped ? "layers.5.mlp.down_proj forward 8.1e4 > 65504" : ""});
    if (skipped) scale /= 2;
  }
  if (shape.stops) {
    a.stopped =
        "The run stopped after step 20: the forward pass overflowed in 3 steps in a row, which no loss scale "
        "can cure.";
    a.first_non_finite = FirstNonFinite{
        .step = 12,
        .scope = "model.layers.5.mlp.down_proj",
        .op = "matmul",
        .pass = "forward",
        .format = Scalar::f16,
        .value = 81234,
        .channel = 311,
        .inputs = {{"x", Scalar::f16, 1.2e-6, 41220}, {"weight", Scalar::f16, 6e-8, 1.9}},
        .rows = {3, 17},
        .text =
            "Row 17 of model.layers.5.mlp.up_proj.weight is an outlier: its rms is 1500 times that of its "
            "neighbours."};
  }
  const auto layer_scope = [](int layer, const char* module) {
    return "model.layers." + std::to_string(layer) + "." + module;
  };
  const SyntheticOp embedding{"", "gather", -5, -18, Scalar::f16}, head{"", "log_prob", 2, -18, Scalar::f16};
  a.values.push_back(synthetic_value("model.embed_tokens", embedding, true, 0, shape, random));
  for (int layer = 0; layer < shape.layers; ++layer)
    for (const SyntheticOp& op : kSyntheticOps)
      a.values.push_back(synthetic_value(layer_scope(layer, op.module), op, true, layer, shape, random));
  a.values.push_back(synthetic_value("lm_head", head, true, 0, shape, random));
  a.values.push_back(synthetic_value("lm_head", head, false, shape.layers, shape, random));
  for (int layer = shape.layers; layer-- > 0;)
    for (auto op = std::end(kSyntheticOps); op-- != std::begin(kSyntheticOps);)
      a.values.push_back(synthetic_value(layer_scope(layer, op->module), *op, false, layer, shape, random));
  a.weights.push_back(synthetic_parameter("model.embed_tokens.weight", false, shape, random));
  for (int layer = 0; layer < shape.layers; ++layer)
    for (const SyntheticOp& op : kSyntheticOps) {
      const std::string module = op.module;
      if (module.find('.') == std::string::npos && module.find("norm") == std::string::npos) continue;
      a.weights.push_back(synthetic_parameter(layer_scope(layer, op.module) + ".weight",
                                              module.find("norm") != std::string::npos, shape, random));
    }
  a.weights.push_back(synthetic_parameter("model.norm.weight", true, shape, random));
  for (const ValueSeries& v : a.values)
    a.plan.push_back(
        synthetic_row(v.scope, v.op, v.pass, v.op == "rmsnorm" ? "f32" : std::string(name(v.format))));
  a.plan.push_back({.scope = "optimizer",
                    .op = "adamw",
                    .pass = "update",
                    .stored = "bf16",
                    .multiplied = "–",
                    .accumulated = "f32",
                    .order = "",
                    .output = "bf16+f16",
                    .rounded = "",
                    .decided_by = "16-mixed",
                    .kernel = ""});
  return a;
}

}  // namespace mantissa::test
