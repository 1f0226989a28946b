#include "mantissa/engine/plan/caveats.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/engine/plan/explain.h"
#include "mantissa/precision/policy/accumulate.h"

namespace mantissa::plan {

namespace {

/// Returns the first activation whose scale is that of the tensor itself, or null. A weight is the same in
/// every micro-batch.
const Buffer* scaled_by_itself(const Program& p) {
  const auto current = std::ranges::find_if(p.buffers, [&](const Buffer& b) {
    return b.home == Home::activation && b.scaled && b.scaled->scale >= 0 &&
           p.scales[static_cast<std::size_t>(b.scaled->scale)].current;
  });
  return current == p.buffers.end() ? nullptr : &*current;
}

}  // namespace

bool scales_by_batch(const Program& program) {
  return scaled_by_itself(program) != nullptr;
}

std::vector<std::string> split_exceptions(const Program& p) {
  std::vector<std::string> out;
  // Also the gradient of one use of a weight, to which a rule may give a format of its own.
  for (const Step& s : p.steps) {
    const auto narrow = std::ranges::find_if(s.outputs, [&](BufferId b) {
      return p.buffer(b).home == Home::gradient && !holds(p.buffer(b).type, p.arithmetic);
    });
    if (narrow == s.outputs.end()) continue;
    const auto slot = std::ranges::find(p.slots, *narrow, &Slot::gradient);
    out.push_back(fmt::format("grads={} is rounded after each micro-batch ({})", name(p.buffer(*narrow).type),
                              slot != p.slots.end() ? slot->name : s.scope));
    break;
  }
  if (const Buffer* current = scaled_by_itself(p)) {
    out.push_back(fmt::format("scaling=current computes a tensor's scale from its micro-batch ({})",
                              p.scales[static_cast<std::size_t>(current->scaled->scale)].name));
  }
  return out;
}

std::vector<Imitation> imitations(const Program& p) {
  std::vector<Imitation> out;
  const auto add = [&](std::string what, const Step& s, bool sums = false) {
    if (std::ranges::find(out, what, &Imitation::what) == out.end())
      out.push_back({std::move(what), use_text(s), sums});
  };
  for (const Step& s : p.steps) {
    if (rounds_sums(s)) {
      const std::int64_t terms = s.accumulator.block == 0 ? kSumBlock : s.accumulator.block;
      add(fmt::format("sums rounded to {} after every {} terms", name(s.accumulator.format), terms), s, true);
    }
    if (has_card(s))
      add(fmt::format("sums of products as on {}", precision::accumulator_text(s.accumulator)), s, true);
    for (const Operand& o : s.inputs) {
      const WeightFormat format = p.buffer(o.buffer).served.format;
      if (format != WeightFormat::none) add(fmt::format("weights rounded to {}", name(format)), s);
    }
    const bool rounds = s.op->duty == graph::Duty::rounding || !factor_format(s).empty();
    if (s.interior != p.arithmetic) add(fmt::format("{} in {}", s.op->interior, name(s.interior)), s);
    if (rounds && s.compute.saturate) add("saturation of values beyond the range", s);
    if (rounds && s.compute.flush_subnormals) add("flushing of subnormals to zero", s);
    if (s.rounding == Rounding::stochastic) add("activations rounded stochastically", s);
    if (s.rounding == Rounding::toward_zero) add("activations rounded toward zero", s);
  }
  return out;
}

}  // namespace mantissa::plan
