// Casts and sums that a kernel can do while it loads or stores are folded into it.
#include <algorithm>

#include "mantissa/plan/passes.h"

namespace mantissa::plan {
namespace {

using graph::Read;

/// A step that only changes the format of its one input.
bool is_copy(const Step& s) {
  return s.op->expression != nullptr && s.inputs.size() == 1 && s.outputs.size() == 1 &&
         s.expression.code.size() == 2;
}

/// A step that adds two values.
bool is_sum_of_two(const Step& s) {
  return (s.op->id == "sum" || s.op->id == "add") && s.inputs.size() == 2 && s.addend == kNoBuffer;
}

class Folding {
 public:
  explicit Folding(Program& program) : p_(program) {}

  void run() {
    bool changed = true;
    while (changed) {
      index();
      changed = fold_one_kind(&Folding::drop_identity) || fold_one_kind(&Folding::fold_into_store) ||
                fold_one_kind(&Folding::fold_into_addend) || fold_one_kind(&Folding::fold_into_loads) ||
                fold_one_kind(&Folding::fold_into_gradient);
    }
  }

 private:
  void index() {
    readers_ = readers_of(p_);
    writer_ = writer_of(p_);
  }

  bool fold_one_kind(bool (Folding::*fold)(std::size_t)) {
    std::vector<bool> dead(p_.steps.size(), false);
    bool any = false;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      if ((this->*fold)(i)) {
        dead[i] = any = true;
        index_without(dead);
      }
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      if (!dead[i]) {
        if (kept != i) p_.steps[kept] = std::move(p_.steps[i]);
        ++kept;
      }
    }
    p_.steps.resize(kept);
    if (any) index();
    return any;
  }

  void index_without(const std::vector<bool>& dead) {
    index();
    for (std::vector<std::size_t>& r : readers_) std::erase_if(r, [&](std::size_t s) { return dead[s]; });
  }

  const std::vector<std::size_t>& readers(BufferId b) const { return readers_[static_cast<std::size_t>(b)]; }
  bool is_private(BufferId b) const { return p_.buffer(b).home == Home::activation && !is_output(p_, b); }

  void replace_reads(BufferId from, BufferId to) {
    for (Step& s : p_.steps) {
      for (Operand& o : s.inputs) {
        if (o.buffer == from) o.buffer = to;
      }
      if (s.addend == from) s.addend = to;
    }
    for (auto& [name, b] : p_.outputs) {
      if (b == from) b = to;
    }
  }

  /// A copy that changes nothing.
  bool drop_identity(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_copy(s) || p_.buffer(s.inputs[0].buffer).type != p_.buffer(s.outputs[0]).type) return false;
    if (!is_private(s.outputs[0])) return false;
    const BufferId from = s.outputs[0];
    const BufferId to = s.inputs[0].buffer;
    p_.steps[i].inputs.clear();
    p_.steps[i].outputs.clear();
    replace_reads(from, to);
    return true;
  }

  /// A copy whose input is the unrounded result of a step and read by nobody else: that step rounds as it
  /// stores.
  bool fold_into_store(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_copy(s)) return false;
    const BufferId wide = s.inputs[0].buffer;
    if (p_.buffer(wide).type != p_.arithmetic || !is_private(wide) || readers(wide).size() != 1) return false;
    const std::int64_t w = writer_[static_cast<std::size_t>(wide)];
    if (w < 0) return false;
    Step& writer = p_.steps[static_cast<std::size_t>(w)];
    if (writer.phase != s.phase) return false;
    std::replace(writer.outputs.begin(), writer.outputs.end(), wide, s.outputs[0]);
    // A result that nothing is added to is rounded once, as it is stored.
    p_.steps[i].inputs.clear();
    p_.steps[i].outputs.clear();
    return true;
  }

  /// A sum of two, one of which is the only use of a step whose kernel can add: it adds before it stores.
  bool fold_into_addend(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_sum_of_two(s)) return false;
    for (const std::size_t mine : {std::size_t{1}, std::size_t{0}}) {
      const BufferId term = s.inputs[mine].buffer;
      const BufferId other = s.inputs[1 - mine].buffer;
      const std::int64_t w = writer_[static_cast<std::size_t>(term)];
      const std::int64_t w_other = writer_[static_cast<std::size_t>(other)];
      if (w < 0 || w_other > w || term == other || !is_private(term) || readers(term).size() != 1) continue;
      Step& writer = p_.steps[static_cast<std::size_t>(w)];
      if (!writer.op->takes_addend || writer.addend != kNoBuffer || writer.phase != s.phase) continue;
      const Scalar rounded = p_.buffer(term).type;
      if (rounded != p_.arithmetic && writer.op->op != "matmul") continue;
      writer.rounded = rounded;
      writer.addend = other;
      writer.outputs[0] = s.outputs[0];
      p_.steps[i].inputs.clear();
      p_.steps[i].outputs.clear();
      return true;
    }
    return false;
  }

  /// A copy that is only read as a factor of products in its own format: they round as they load.
  bool fold_into_loads(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_copy(s) || !is_private(s.outputs[0])) return false;
    const BufferId from = s.inputs[0].buffer;
    const BufferId to = s.outputs[0];
    const Scalar format = p_.buffer(to).type;
    if (readers(to).empty()) return false;
    for (const std::size_t r : readers(to)) {
      const Step& reader = p_.steps[r];
      if (reader.addend == to || reader.op->expression != nullptr || reader.op->id == "fused") return false;
      for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
        if (reader.inputs[k].buffer != to) continue;
        const Read read = reader.op->reads[std::min(k, reader.op->reads.size() - 1)];
        if (read != Read::matmul || reader.inputs[k].operand != format) return false;
      }
    }
    for (const std::size_t r : readers(to)) {
      for (Operand& o : p_.steps[r].inputs) {
        if (o.buffer == to) o = {from, format};
      }
    }
    p_.steps[i].inputs.clear();
    p_.steps[i].outputs.clear();
    return true;
  }

  /// A micro-batch's weight gradient that is only made to be added to one of fewer bits: the kernel that
  /// makes it adds and rounds as it stores.
  bool fold_into_gradient(std::size_t i) {
    const Step& s = p_.steps[i];
    if (s.op->id != "accumulate") return false;
    const BufferId wide = s.inputs[1].buffer;
    const std::int64_t w = writer_[static_cast<std::size_t>(wide)];
    if (w < 0 || !is_private(wide) || readers(wide).size() != 1) return false;
    Step& writer = p_.steps[static_cast<std::size_t>(w)];
    if (!writer.op->rounds_gradient || writer.phase != s.phase) return false;
    std::replace(writer.outputs.begin(), writer.outputs.end(), wide, s.outputs[0]);
    p_.steps[i].inputs.clear();
    p_.steps[i].outputs.clear();
    return true;
  }

  Program& p_;
  std::vector<std::vector<std::size_t>> readers_;
  std::vector<std::int64_t> writer_;
};

}  // namespace

void fold_casts(Program& program) {
  Folding(program).run();
}

}  // namespace mantissa::plan
