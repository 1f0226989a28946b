// Folds casts and sums into kernels that can include them in loading or storing.
#include <algorithm>

#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/uses.h"

namespace mantissa::plan {
namespace {

using graph::Read;

/// Returns true for a step that only changes the format of its one input.
bool is_copy(const Step& s) {
  return s.op->expression != nullptr && s.inputs.size() == 1 && s.outputs.size() == 1 &&
         s.expression.code.size() == 2;
}

/// Returns true for a step that adds two values of equal shape.
bool is_sum_of_two(const Program& p, const Step& s) {
  return s.op->duty == graph::Duty::sum && s.op->alias == graph::kNone && s.inputs.size() == 2 &&
         s.addend == kNoBuffer && p.buffer(s.inputs[0].buffer).shape == p.buffer(s.inputs[1].buffer).shape;
}

class Folding {
 public:
  explicit Folding(Program& program) : p_(program), uses_(program) {}

  void run() {
    while (fold_one_kind(&Folding::drop_identity) || fold_one_kind(&Folding::fold_into_store) ||
           fold_one_kind(&Folding::fold_into_addend) || fold_one_kind(&Folding::fold_into_loads) ||
           fold_one_kind(&Folding::fold_into_gradient)) {
    }
  }

 private:
  /// Visits all steps once and removes those that were folded.
  bool fold_one_kind(bool (Folding::*fold)(std::size_t)) {
    bool any = false;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      if (!(this->*fold)(i)) continue;
      p_.steps[i].inputs.clear();
      p_.steps[i].outputs.clear();
      any = true;
    }
    if (!any) return false;
    std::erase_if(p_.steps, [](const Step& s) { return s.outputs.empty(); });
    uses_ = Uses(p_);
    return true;
  }

  const std::vector<std::size_t>& readers(BufferId b) const { return uses_.readers(b); }
  bool is_private(BufferId b) const { return p_.buffer(b).home == Home::activation && !is_output(p_, b); }

  /// Removes a copy that changes nothing.
  bool drop_identity(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_copy(s) || p_.buffer(s.inputs[0].buffer).type != p_.buffer(s.outputs[0]).type) return false;
    if (!is_private(s.outputs[0])) return false;
    const BufferId from = s.outputs[0];
    const BufferId to = s.inputs[0].buffer;
    for (const std::size_t r : readers(from)) {
      Step& reader = p_.steps[r];
      for (Operand& o : reader.inputs) {
        if (o.buffer == from) o.buffer = to;
      }
      if (reader.addend == from) reader.addend = to;
    }
    uses_.remove_reader(to, i);
    uses_.move_readers(from, to);
    uses_.set_writer(from, -1);
    return true;
  }

  /// Folds a copy of an unrounded result without other readers: the step that computes it rounds while
  /// storing.
  bool fold_into_store(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_copy(s)) return false;
    const BufferId wide = s.inputs[0].buffer;
    if (p_.buffer(wide).type != p_.arithmetic || !is_private(wide) || readers(wide).size() != 1) return false;
    const std::int64_t w = uses_.writer(wide);
    if (w < 0) return false;
    Step& writer = p_.steps[static_cast<std::size_t>(w)];
    if (writer.phase != s.phase) return false;
    std::replace(writer.outputs.begin(), writer.outputs.end(), wide, s.outputs[0]);
    add_deciders(writer, s);
    // A result without an addend is rounded once, while it is stored.
    uses_.remove_reader(wide, i);
    uses_.set_writer(wide, -1);
    uses_.set_writer(s.outputs[0], w);
    return true;
  }

  /// Folds a sum of two values, one of which is the only use of a step whose kernel can add: it adds before
  /// storing.
  bool fold_into_addend(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_sum_of_two(p_, s)) return false;
    for (const std::size_t mine : {std::size_t{1}, std::size_t{0}}) {
      const BufferId term = s.inputs[mine].buffer;
      const BufferId other = s.inputs[1 - mine].buffer;
      const std::int64_t w = uses_.writer(term);
      const std::int64_t w_other = uses_.writer(other);
      if (w < 0 || w_other > w || term == other || !is_private(term) || readers(term).size() != 1) continue;
      Step& writer = p_.steps[static_cast<std::size_t>(w)];
      if (!writer.op->takes_addend || writer.addend != kNoBuffer || writer.phase != s.phase) continue;
      const Scalar rounded = p_.buffer(term).type;
      if (rounded != p_.arithmetic && !writer.op->rounds_before_addend) continue;
      writer.rounded = rounded;
      writer.addend = other;
      writer.outputs[0] = s.outputs[0];
      add_deciders(writer, s);
      uses_.remove_reader(term, i);
      uses_.remove_reader(other, i);
      uses_.add_reader(other, static_cast<std::size_t>(w));
      uses_.set_writer(term, -1);
      uses_.set_writer(s.outputs[0], w);
      return true;
    }
    return false;
  }

  /// Folds a copy that is read only as a factor of products in the copy's format: they round while loading.
  bool fold_into_loads(std::size_t i) {
    const Step& s = p_.steps[i];
    if (!is_copy(s) || !is_private(s.outputs[0])) return false;
    const BufferId from = s.inputs[0].buffer;
    const BufferId to = s.outputs[0];
    const Scalar format = p_.buffer(to).type;
    if (readers(to).empty()) return false;
    for (const std::size_t r : readers(to)) {
      const Step& reader = p_.steps[r];
      if (reader.addend == to || reader.op->kind == graph::OpKind::pointwise) return false;
      for (std::size_t k = 0; k < reader.inputs.size(); ++k) {
        if (reader.inputs[k].buffer != to) continue;
        const Read read = reader.op->reads[std::min(k, reader.op->reads.size() - 1)];
        if (read != Read::matmul || reader.inputs[k].operand != format) return false;
      }
    }
    for (const std::size_t r : readers(to)) {
      for (Operand& o : p_.steps[r].inputs) {
        if (o.buffer == to) o = {from, format, o.factors};
      }
    }
    uses_.remove_reader(from, i);
    uses_.move_readers(to, from);
    uses_.set_writer(to, -1);
    return true;
  }

  /// Folds a micro-batch's weight gradient that is only added to a narrower one: the kernel that computes it
  /// adds and rounds while storing.
  bool fold_into_gradient(std::size_t i) {
    const Step& s = p_.steps[i];
    if (s.op->duty != graph::Duty::collect) return false;
    const BufferId wide = s.inputs[1].buffer;
    const std::int64_t w = uses_.writer(wide);
    if (w < 0 || !is_private(wide) || readers(wide).size() != 1) return false;
    Step& writer = p_.steps[static_cast<std::size_t>(w)];
    if (!writer.op->rounds_gradient || writer.phase != s.phase) return false;
    std::replace(writer.outputs.begin(), writer.outputs.end(), wide, s.outputs[0]);
    uses_.remove_reader(s.inputs[0].buffer, i);
    uses_.remove_reader(wide, i);
    uses_.set_writer(wide, -1);
    uses_.set_writer(s.outputs[0], w);
    return true;
  }

  Program& p_;
  Uses uses_;
};

}  // namespace

void fold_casts(Program& program) {
  Folding(program).run();
}

}  // namespace mantissa::plan
