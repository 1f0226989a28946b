// The table of the fields of a policy.
#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/precision/policy/fields.h"

namespace mantissa::precision {

std::span<const Field> field_table() {
  static const std::array<Field, 29> table = {{
      {"params",
       {"param", "param_dtype"},
       &Fields::params,
       true,
       "format of the weights that the optimizer updates (masters)"},
      {"weights",
       {},
       &Fields::weights,
       true,
       "format to which weights are rounded before their products, in which the model will be served; none: "
       "not rounded",
       "none"},
      {"compute", {"compute_dtype"}, &Fields::compute, true, "format of matrix operands and of activations"},
      {"accumulate",
       {},
       &Fields::accumulate,
       true,
       "format in which products are summed, or the card whose sums they are"},
      {"accumulate_block",
       {},
       &Fields::accumulate_block,
       true,
       "terms between roundings of a partial sum; 0: every 256 terms"},
      {"accumulate_order",
       {},
       &Fields::accumulate_order,
       true,
       "order in which products are summed: chain, tile, or by the formats of the factors (auto)",
       "auto"},
      {"residual", {}, &Fields::residual, true, "format of the residual stream"},
      {"output",
       {"output_dtype"},
       &Fields::output,
       true,
       "format of logits and losses; compute>f32 rounds to compute first"},
      {"grads",
       {"grad", "gradients"},
       &Fields::grads,
       true,
       "format in which weight gradients are stored and summed"},
      {"reduce",
       {"reduce_dtype"},
       &Fields::reduce,
       false,
       "format of sums over shards of the batch, which ranks communicate"},
      {"reduce_rounding", {}, &Fields::reduce_rounding, false, "how sums over shards are rounded", "nearest"},
      {"optimizer",
       {},
       &Fields::optimizer,
       true,
       "format of the optimizer's moments; NAME-256: codes in blocks of 256 with a scale"},
      {"kv", {"kv_cache"}, &Fields::kv, true, "format of keys and values, also in training"},
      {"state", {}, &Fields::state, true, "format of recurrent states, rounded after every token", "f32"},
      {"checkpoint", {}, &Fields::checkpoint, false, "format of the weights in model/"},
      {"rounding", {}, &Fields::rounding, true, "how weights, moments and states of recurrences are rounded"},
      {"kahan", {}, &Fields::kahan, true, "keep the rounding error of an update and add it to the next"},
      {"saturate",
       {},
       &Fields::saturate,
       true,
       "overflow gives the largest finite value instead of infinity"},
      {"flush_subnormals", {"flush"}, &Fields::flush_subnormals, true, "subnormal results become zero"},
      {"scaling",
       {},
       &Fields::scaling,
       true,
       "scale of a tensor: from earlier steps (delayed), from its own values (current), or none; auto: "
       "current for nvfp4, delayed for 8 bits",
       "auto"},
      {"scale_margin",
       {"margin"},
       &Fields::scale_margin,
       true,
       "binades of headroom above the largest magnitude",
       "0"},
      {"amax_history",
       {"amax_history_len"},
       &Fields::amax_history,
       false,
       "steps whose largest magnitude sets a delayed scale",
       "1024"},
      {"scale_rounding",
       {},
       &Fields::scale_rounding,
       true,
       "how the scales of mx blocks are rounded to powers of two: floor (OCP), ceil, even, or rceil (NVIDIA: "
       "elements never saturate); none: scales in f32",
       "floor"},
      {"gradient_rounding",
       {},
       &Fields::gradient_rounding,
       true,
       "how gradients that are operands round to formats with scales: nearest or stochastic",
       "nearest"},
      {"weight_block",
       {},
       &Fields::weight_block,
       true,
       "elements of a weight that share a scale in block formats: a block (auto), a row, or a square, which gives "
       "the forward and the backward product equal values",
       "auto"},
      {"activation_block",
       {},
       &Fields::activation_block,
       true,
       "elements of an activation or its gradient that share a scale in block formats: a block (auto), 128, or a row",
       "auto"},
      {"hadamard",
       {},
       &Fields::hadamard,
       true,
       "random Hadamard transform of 16 tokens of both factors of a weight gradient, in block formats",
       "none"},
      {"norm_cast",
       {},
       &Fields::norm_cast,
       true,
       "where RMSNorm rounds: once, after the gain multiplies (Transformer Engine), or also before it, to the format "
       "of its input (transformers)",
       "after-gain"},
      {"loss_scale",
       {},
       &Fields::loss_scale,
       false,
       "factor on the loss that keeps small gradients representable"},
  }};
  return table;
}

const Field* find_field(std::string_view name) {
  for (const Field& field : field_table()) {
    if (field.name == name || std::ranges::find(field.aliases, name) != field.aliases.end()) return &field;
  }
  return nullptr;
}

std::vector<std::string> field_names() {
  return names_of(field_table(), &Field::name);
}

}  // namespace mantissa::precision
