// Splits and joins of columns without copies: the parts become views of the whole buffer. Two conditions hold
// for each. Every kernel that reads or writes a part accepts rows with gaps, and the whole buffer, which now
// lives as long as any part, holds no more bytes over the steps than the copies would.
#include <algorithm>

#include "mantissa/engine/plan/lifetimes.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/uses.h"

namespace mantissa::plan {
namespace {

using graph::Duty;

bool accepts(std::uint32_t strided, std::size_t operand) {
  return (strided >> std::min<std::size_t>(operand, 31) & 1U) != 0;
}

class Viewing {
 public:
  explicit Viewing(Program& program)
      : p_(program),
        uses_(program),
        writes_(program.buffers.size()),
        lives_(lifetimes(program)),
        has_views_(program.buffers.size()) {
    for (const Step& s : p_.steps) {
      for (const BufferId b : s.outputs) ++writes_[at(b)];
    }
  }

  void run() {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      Step& s = p_.steps[i];
      if ((s.op->duty == Duty::split && can_split(i)) || (s.op->duty == Duty::join && can_join(i))) {
        make_views(s);
        s.inputs.clear();
        s.outputs.clear();
      }
    }
    std::erase_if(p_.steps, [](const Step& s) { return s.outputs.empty(); });
  }

 private:
  static std::size_t at(BufferId b) { return static_cast<std::size_t>(b); }

  /// The whole and its parts, of a split or a join.
  static BufferId whole_of(const Step& s) {
    return s.op->duty == Duty::split ? s.inputs[0].buffer : s.outputs[0];
  }
  static std::vector<BufferId> parts_of(const Step& s) {
    if (s.op->duty == Duty::split) return s.outputs;
    std::vector<BufferId> parts;
    for (const Operand& o : s.inputs) parts.push_back(o.buffer);
    return parts;
  }

  /// A matrix of plain elements in the arena that one step writes.
  bool is_plain(BufferId b) const {
    const Buffer& buffer = p_.buffer(b);
    return buffer.home == Home::activation && !buffer.integer && !buffer.scaled && buffer.shape.rank() >= 2 &&
           buffer.shape.dims().back().axis == Axis::fixed && writes_[at(b)] == 1;
  }

  /// A part that may lie in `whole`: nothing else shares its memory, and nobody reads it by its name.
  bool may_lie_in(BufferId part, BufferId whole) const {
    const Buffer& b = p_.buffer(part);
    return is_plain(part) && b.type == p_.buffer(whole).type && b.parent == kNoBuffer &&
           !has_views_[at(part)] && !is_output(p_, part);
  }

  /// All readers of `b` but the step at `except` accept rows with gaps. All kernels that take an addend do.
  bool readers_accept_gaps(BufferId b, std::size_t except) const {
    const std::vector<std::size_t>& readers = uses_.readers(b);
    return std::all_of(readers.begin(), readers.end(), [&](std::size_t r) {
      const Step& s = p_.steps[r];
      for (std::size_t k = 0; k < s.inputs.size() && r != except; ++k) {
        if (s.inputs[k].buffer == b && !accepts(s.op->strided.inputs, k)) return false;
      }
      return true;
    });
  }

  bool writer_accepts_gaps(BufferId b) const {
    const Step& s = p_.steps[static_cast<std::size_t>(uses_.writer(b))];
    const auto output = std::find(s.outputs.begin(), s.outputs.end(), b);
    return output != s.outputs.end() && s.op->alias == graph::kNone &&
           accepts(s.op->strided.outputs, static_cast<std::size_t>(output - s.outputs.begin()));
  }

  /// Bytes held, summed over the steps.
  double held(BufferId b, const Lifetime& life) const {
    const Buffer& buffer = p_.buffer(b);
    return static_cast<double>(buffer.layout().bytes(buffer.shape)) * static_cast<double>(life.steps());
  }

  /// True if views hold no more than the copies.
  bool saves(BufferId whole, const std::vector<BufferId>& parts) const {
    Lifetime all = lives_[at(whole)];
    double copies = held(whole, all);
    for (const BufferId part : parts) {
      copies += held(part, lives_[at(part)]);
      all.add(lives_[at(part)]);
    }
    return held(whole, all) <= copies;
  }

  /// The buffer that holds the memory of `b`: its parent, or itself.
  BufferId root(BufferId b) const { return p_.buffer(b).parent == kNoBuffer ? b : p_.buffer(b).parent; }

  bool can_split(std::size_t step) const {
    const Step& s = p_.steps[step];
    const BufferId whole = whole_of(s);
    return is_plain(whole) && saves(root(whole), s.outputs) &&
           std::all_of(s.outputs.begin(), s.outputs.end(), [&](BufferId part) {
             return may_lie_in(part, whole) && readers_accept_gaps(part, step);
           });
  }

  bool can_join(std::size_t step) const {
    const Step& s = p_.steps[step];
    const BufferId whole = whole_of(s);
    std::vector<BufferId> parts = parts_of(s);
    std::int64_t width = 0;
    for (const BufferId part : parts) {
      if (!may_lie_in(part, whole) || !readers_accept_gaps(part, step) || !writer_accepts_gaps(part))
        return false;
      width += p_.buffer(part).shape.last();
    }
    // A gradient of some parts only has columns of zeros, which the join writes.
    if (!is_plain(whole) || width != p_.buffer(whole).shape.last() || !saves(whole, parts)) return false;
    std::sort(parts.begin(), parts.end());
    return std::adjacent_find(parts.begin(), parts.end()) == parts.end();
  }

  void make_views(const Step& s) {
    const BufferId whole = whole_of(s), parent = root(whole);
    std::int64_t column = p_.buffer(whole).first_column;
    for (const BufferId part : parts_of(s)) {
      Buffer& b = p_.buffer(part);
      b.parent = parent;
      b.first_column = column;
      column += b.shape.last();
      lives_[at(parent)].add(lives_[at(part)]);
    }
    has_views_[at(parent)] = has_views_[at(whole)] = true;
  }

  Program& p_;
  Uses uses_;
  std::vector<int> writes_;  // steps that write each buffer
  std::vector<Lifetime> lives_;
  std::vector<bool> has_views_;
};

}  // namespace

void view_columns(Program& program) {
  Viewing(program).run();
}

}  // namespace mantissa::plan
