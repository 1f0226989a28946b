#include "mantissa/engine/plan/operand_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/policy_uses.h"

namespace mantissa::plan {

using graph::Node;
using graph::Read;

namespace {

/// Returns the elements that share a scale in blocks of `format`.
BlockScaling scaling_of(const Node& node, bool weight, const precision::Resolved& r, BlockFormat format) {
  BlockScaling scaling;
  if (traits(format).power_of_two_scale) scaling.rounding = r.scale_rounding;
  if (weight) {
    constexpr std::array<std::int32_t, 5> kLengths = {0, 16, 32, 128, kWholeSum};
    scaling.length = kLengths.at(static_cast<std::size_t>(r.weight_block));
    scaling.square = scaling.length > 0;
  } else {
    constexpr std::array<std::int32_t, 3> kLengths = {0, 128, kWholeSum};
    scaling.length = kLengths.at(static_cast<std::size_t>(r.activation_block));
  }
  if (scaling.length == kWholeSum || scaling.length % traits(format).block == 0) return scaling;
  throw ConfigError(
      "{}: weight_block=16x16: expected a format with blocks of 16 elements, got {} with {}. Fix: "
      "weight_block=32x32, or compute=nvfp4",
      node.scope, traits(format).name, traits(format).block);
}

}  // namespace

std::optional<ScaledStorage> scaled_storage_of(const Node& node, std::size_t i, bool weight,
                                               const precision::Resolved& r, Scalar& element) {
  if (!is_linear(node) || r.compute->scaled == precision::Scaled::none) return std::nullopt;
  ScaledStorage q;
  q.stochastic = node.op->operands[i] == "gradient" && r.gradient_rounding == Rounding::stochastic;
  if (r.compute->scaled == precision::Scaled::block) {
    if (node.op->copies_rows) {
      throw ConfigError(
          "{}: {} takes the rows of each expert apart, and rows in blocks stay together; give the experts a "
          "format without blocks: --rule '*.experts.*: compute=bf16'",
          node.scope, node.op->op);
    }
    q.blocks = r.compute->block;
    q.scaling = scaling_of(node, weight, r, *q.blocks);
    q.along_rows = node.op->sums_across_rows != nullptr && node.op->sums_across_rows(node.attributes, i);
    element = Scalar::bf16;
    if (in_f32(q.scaling, *q.blocks)) {
      element = Scalar::f32;
      // A square has one scale in both directions, and its values lie in place.
      if (q.scaling.square) q.along_rows = false;
    }
  } else {
    element = node.op->operands[i] == "gradient" ? r.compute->gradient : r.compute->factor.format;
  }
  return q;
}

bool transforms_factors(const Node& node, PolicyUses& uses) {
  if (!is_linear(node) || !node.op->sums_tokens || uses.resolve(node).hadamard == precision::Hadamard::none)
    return false;
  std::string_view with, without;
  for (const std::string_view operand : node.op->operands) {
    const bool blocks = uses.resolve(node, operand).compute->scaled == precision::Scaled::block;
    (blocks ? with : without) = operand;
  }
  if (!with.empty() && !without.empty()) {
    throw ConfigError(
        "{}: hadamard=16 transforms both factors of a weight gradient: expected blocks in both, got none in "
        "the {}. Fix: a rule \"{}: hadamard=none\", or blocks in both",
        node.scope, without, node.scope);
  }
  return without.empty();
}

std::int32_t scale_of(Program& program, const Buffer& from, const ScaledStorage& q,
                      const precision::Resolved& r, Scalar element) {
  const bool nvfp4 = q.blocks == BlockFormat::nvfp4;
  if ((q.blocks && !nvfp4) || r.scaling == precision::Scaling::none) return -1;
  ScaleSlot slot;
  slot.element = element;
  slot.nvfp4 = nvfp4;
  slot.current = r.scaling == precision::Scaling::current;
  slot.margin = static_cast<std::int32_t>(r.scale_margin);
  slot.history = slot.current ? 0 : r.amax_history;
  // Rules may give two readers of a tensor different scales, so the name contains the settings.
  slot.name = fmt::format("{}:{}", from.name, nvfp4 ? "nvfp4" : name(element));
  if (q.hadamard) slot.name += ":hadamard";
  if (slot.current) slot.name += ":current";
  if (slot.margin != 0) slot.name += fmt::format(":{}", slot.margin);
  for (std::size_t s = 0; s < program.scales.size(); ++s) {
    if (program.scales[s].name == slot.name) return static_cast<std::int32_t>(s);
  }
  program.scales.push_back(slot);
  return static_cast<std::int32_t>(program.scales.size() - 1);
}

void check_parts(const Step& s) {
  std::optional<int> parts;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const Read read = s.op->reads[std::min(i, s.op->reads.size() - 1)];
    if (read != Read::matmul) continue;
    const int here = s.inputs[i].operand.parts;
    if (parts.value_or(here) != here || here != s.compute.parts) {
      throw ConfigError(
          "{}: one factor of {} is used in {} and another in {}; let one rule without \"operand\" "
          "set compute for all of them",
          s.scope, s.op->op, counted(here, "part"), counted(parts.value_or(s.compute.parts), "part"));
    }
    parts = here;
  }
}

}  // namespace mantissa::plan
