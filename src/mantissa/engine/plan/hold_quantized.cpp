// Holds frozen weights of linear layers in quantized blocks, which the layers read in place of masters and
// copies. The blocks' values are rounded to the master's format and then as factors, so a product has the
// bits of one with a master of these values.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {
namespace {

/// The reads of a slot's master and copies.
struct Reads {
  std::vector<Operand*> operands;
  bool linear = true;       // all by ops that take quantized blocks of a linear layer's weight
  bool transposed = false;  // the weight is [in, out]
};

Reads reads_of(Program& p, const Slot& slot) {
  Reads reads;
  const auto is_weight = [&](BufferId id) {
    return id == slot.master_buffer || std::ranges::find(slot.copies, id) != slot.copies.end();
  };
  for (Step& s : p.steps) {
    for (std::size_t i = 0; i < s.inputs.size(); ++i) {
      if (!is_weight(s.inputs[i].buffer)) continue;
      reads.operands.push_back(&s.inputs[i]);
      const bool takes = (s.op->kind == graph::OpKind::product || s.op->kind == graph::OpKind::rows) &&
                         s.op->quantized == static_cast<std::int32_t>(i);
      reads.linear = reads.linear && takes;
      reads.transposed = s.attributes.flag("transposed");
    }
    reads.linear = reads.linear && !is_weight(s.addend) && std::ranges::none_of(s.outputs, is_weight);
  }
  return reads;
}

std::int64_t row_width(const Slot& slot, bool transposed) {
  return transposed ? slot.shape.leading() : slot.shape.last();
}

void check(const Program& p, const Slot& slot, const QuantizedMatrix& quants, const Reads& reads) {
  const std::string_view format = traits(quants.format).name;
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    throw ConfigError("{} cannot be held in {}: {}. Fix: {}", slot.name, format, why, fix);
  };
  const std::string scope = slot.name.substr(0, slot.name.rfind('.'));
  for (const Operand* o : reads.operands) {
    const Buffer& b = p.buffer(o->buffer);
    if (b.served.format != WeightFormat::none) {
      refuse(fmt::format("the policy rounds it to weights={}", name(b.served.format)),
             fmt::format("--rule '{}: weights=none', or hold it in the policy's formats", scope));
    }
    if (b.scaled) {
      refuse("the policy multiplies it under scales",
             fmt::format("--rule '{}: compute=bf16', or hold it in the policy's formats", scope));
    }
    if (p.arithmetic == Scalar::f64) refuse("the policy computes in f64", "use a policy with f32 arithmetic");
  }
}

}  // namespace

void hold_quantized(Program& p, const QuantizedSlots& wanted) {
  if (!wanted) return;
  std::optional<QuantFormat> format;
  bool held = false;
  const Slot* narrow = nullptr;
  bool narrow_transposed = false;
  for (Slot& slot : p.slots) {
    const std::optional<QuantFormat> f = wanted(slot.name);
    if (!f) continue;
    format = f;
    Reads reads = reads_of(p, slot);
    if (reads.operands.empty() || !reads.linear) continue;
    if (slot.gradient != kNoBuffer) {
      throw ConfigError(
          "{} cannot be held in {}: only frozen weights are, and it gets a gradient. Fix: hold it in the "
          "policy's formats",
          slot.name, traits(*f).name);
    }
    if (!takes_width(*f, static_cast<std::size_t>(row_width(slot, reads.transposed)))) {
      if (narrow == nullptr) narrow_transposed = reads.transposed;
      if (narrow == nullptr) narrow = &slot;
      continue;
    }
    const QuantizedMatrix quants{*f, reads.transposed};
    check(p, slot, quants, reads);
    for (Operand* o : reads.operands) o->buffer = slot.master_buffer;
    // The copies are not weights any more, and no step uses them.
    for (const BufferId copy : slot.copies) {
      p.buffer(copy).home = Home::activation;
      p.buffer(copy).slot = -1;
    }
    slot.copies.clear();
    p.buffer(slot.master_buffer).quants = quants;
    held = true;
  }
  if (narrow != nullptr && !held) {
    throw ConfigError(
        "no weight can be held in {0}: the rows of {1} have {2} elements, and {0} needs a multiple of {3}. Fix: "
        "hold it in int8, or in the policy's formats",
        traits(*format).name, narrow->name, row_width(*narrow, narrow_transposed), traits(*format).per_scale);
  }
  if (format && !held) {
    throw ConfigError(
        "no weight of a linear layer is held in {}: the parameters chosen are vectors, embeddings or the "
        "head, which keep the policy's formats. Fix: choose weights of linear layers, such as \"*.mlp.*\"",
        traits(*format).name);
  }
}

}  // namespace mantissa::plan
