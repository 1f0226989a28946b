// Steps that treat tokens separately, chunk by chunk: the feed-forward of a layer, norms, projections. Such a
// range runs completely for one chunk of tokens before it begins the next, so the buffers between its steps
// hold only one chunk.
//
// Weight gradients are sums over tokens. In a chunk that ends within a leaf, their kernels add to the sum of
// the leaf (Step::leaf), which has the order of a sum over the whole leaf. The passes before this one have
// placed all roundings, so no bit depends on the chunks.
#include <algorithm>
#include <iterator>
#include <utility>

#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {
namespace {

template <class Visit>
void for_each_operand(const Step& step, const Visit& visit) {
  for (const Operand& o : step.inputs) visit(o.buffer);
  for (const BufferId b : step.outputs) visit(b);
  if (step.addend != kNoBuffer) visit(step.addend);
}

class Chunking {
 public:
  Chunking(Program& program, std::int64_t tokens, bool splits_leaves)
      : p_(program), tokens_(tokens), splits_leaves_(splits_leaves), touched_by_(program.buffers.size()) {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      for_each_operand(p_.steps[i], [&](BufferId b) { touched_by_[at(root(b))].push_back(i); });
    }
  }

  void run() {
    std::vector<Step> steps = std::move(p_.steps);
    p_.steps = {};
    for (std::size_t begin = 0; begin < steps.size();) {
      std::size_t end = begin;
      while (end < steps.size() && may_run_in_chunks(steps[end]) && steps[end].phase == steps[begin].phase)
        ++end;
      if (end == begin) {
        p_.steps.push_back(std::move(steps[begin++]));
        continue;
      }
      append(std::span(steps).subspan(begin, end - begin), begin);
      begin = end;
    }
  }

 private:
  /// Steps of one run, and the root buffers that only they use.
  struct Range {
    std::vector<bool> chunked;        // by step of the run
    std::vector<BufferId> internals;  // ascending
    bool is_internal(BufferId root) const {
      return std::binary_search(internals.begin(), internals.end(), root);
    }
  };

  static std::size_t at(BufferId b) { return static_cast<std::size_t>(b); }
  BufferId root(BufferId b) const { return p_.buffer(b).parent == kNoBuffer ? b : p_.buffer(b).parent; }
  bool has_scale(BufferId b) const {
    const auto& q = p_.buffer(b).scaled;
    return q && q->scale >= 0;
  }

  bool may_run_in_chunks(const Step& s) const {
    if (s.op->alias != graph::kNone || s.outputs.empty() || s.phase == graph::Phase::finish ||
        s.phase == graph::Phase::update)
      return false;
    bool plain = true;
    for_each_operand(s, [&](BufferId id) {
      const Buffer& b = p_.buffer(id);
      const bool by_rows = !b.shape.dims().empty() && b.shape.dim(0).axis == Axis::rows;
      plain = plain && !by_rows && b.home != Home::state;
    });
    // The scale of a whole tensor, or of all tokens of a row, is known only after its last token.
    const bool needs_all = std::ranges::any_of(s.outputs, [&](BufferId b) {
      const auto& q = p_.buffer(b).scaled;
      return (has_scale(b) && p_.scales[static_cast<std::size_t>(q->scale)].current) ||
             (q && q->along_rows && q->scaling.length == kWholeSum);
    });
    const Buffer& out = p_.buffer(s.outputs[0]);
    const bool separate = s.op->per_token && out.shape.has_tokens();
    const bool sum = s.op->sums_tokens && s.outputs.size() == 1 && out.home == Home::gradient;
    return plain && !needs_all && (separate || sum);
  }

  /// Returns true if a sum over tokens has the same bits if leaves are summed in parts.
  bool sums_parts(const Step& s) const {
    std::vector<Shape> inputs;
    for (const Operand& o : s.inputs) inputs.push_back(p_.buffer(o.buffer).shape);
    if (s.op->sums_parts == nullptr || !s.op->sums_parts(inputs)) return false;
    if (s.accumulator.rounds()) return false;  // a leaf's sum rounds every few blocks
    const bool tiles = s.op->kind == graph::OpKind::product && s.accumulator.order != SumOrder::chain;
    // In tile order and that of a card, scales multiply the sum of a leaf; in tile order, products of parts
    // have separate sums over a row.
    return !tiles || (s.compute.parts == 1 &&
                      std::ranges::none_of(s.inputs, [&](const Operand& o) { return has_scale(o.buffer); }));
  }

  /// Returns the root buffers of tokens that only the chunked steps of a run use, ascending. The run begins
  /// at step `first` of the program.
  std::vector<BufferId> internals_of(std::span<const Step> run, std::size_t first,
                                     const std::vector<bool>& chunked) const {
    std::vector<BufferId> found;
    const auto outside = [&](std::size_t step) {
      return step < first || step >= first + run.size() || !chunked[step - first];
    };
    for (std::size_t i = 0; i < run.size(); ++i) {
      for (const BufferId output : run[i].outputs) {
        const BufferId b = root(output);
        const Buffer& buffer = p_.buffer(b);
        if (buffer.home != Home::activation || !buffer.shape.has_tokens() || is_outside_read(b)) continue;
        if (std::ranges::none_of(touched_by_[at(b)], outside)) found.push_back(b);
      }
    }
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  /// Returns true if the buffer, or a view of it, is an output of the program.
  bool is_outside_read(BufferId b) const {
    return std::ranges::any_of(p_.outputs, [&](const auto& o) { return root(o.second) == b; });
  }

  bool touches_internal(const Step& s, const Range& range) const {
    bool touches = false;
    for_each_operand(s, [&](BufferId b) { touches = touches || range.is_internal(root(b)); });
    return touches;
  }

  /// Chooses the steps of a run that run in chunks: from the first to the last step that uses a buffer of
  /// their own, without sums that do not.
  Range range_of(std::span<const Step> run, std::size_t first) const {
    Range range;
    for (const Step& s : run) range.chunked.push_back(!s.op->sums_tokens || sums_parts(s));
    range.internals = internals_of(run, first, range.chunked);
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (run[i].op->sums_tokens && !touches_internal(run[i], range)) range.chunked[i] = false;
    }
    const auto trim = [&](std::size_t i) {
      if (range.chunked[i] && touches_internal(run[i], range)) return false;
      range.chunked[i] = false;
      return true;
    };
    for (std::size_t i = 0; i < run.size() && trim(i);) ++i;
    for (std::size_t i = run.size(); i > 0 && trim(i - 1);) --i;
    return range;
  }

  /// Returns the memory that a range saves, less that of the sums of its leaves.
  double saved(std::span<const Step> run, const Range& range) const {
    double bytes = 0;
    for (const BufferId id : range.internals) {
      Buffer one = p_.buffer(id);
      one.chunk = tokens_;
      bytes += static_cast<double>(one.layout().bytes(one.shape)) -
               static_cast<double>(one.layout().bytes(one.held_shape()));
    }
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (!range.chunked[i] || !run[i].op->sums_tokens) continue;
      const Buffer& gradient = p_.buffer(run[i].outputs[0]);
      const int sums = (splits_leaves_ ? 1 : 0) + (gradient.type == p_.arithmetic ? 0 : 1);
      bytes -=
          sums * static_cast<double>(bytes_of(p_.arithmetic)) * static_cast<double>(gradient.shape.count());
    }
    return bytes;
  }

  /// Returns true if a step reads or writes a buffer of all tokens whose scales follow its elements, so that
  /// a chunk of it is not contiguous.
  bool is_packed_outside(std::span<const Step> run, const Range& range) const {
    bool packed = false;
    for (std::size_t i = 0; i < run.size(); ++i) {
      if (!range.chunked[i]) continue;
      for_each_operand(run[i], [&](BufferId id) {
        const Buffer& b = p_.buffer(id);
        packed = packed || (b.shape.has_tokens() && b.layout().blocks && !range.is_internal(root(id)));
      });
    }
    return packed;
  }

  void append(std::span<Step> run, std::size_t first) {
    const Range range = range_of(run, first);
    if (range.internals.empty() || is_packed_outside(run, range) || saved(run, range) <= 0) {
      std::move(run.begin(), run.end(), std::back_inserter(p_.steps));
      return;
    }
    const auto begin = std::ranges::find(range.chunked, true) - range.chunked.begin();
    std::vector<Step> after;
    std::move(run.begin(), run.begin() + begin, std::back_inserter(p_.steps));
    ChunkedSteps chunked{p_.steps.size(), 0, tokens_};
    for (auto i = static_cast<std::size_t>(begin); i < run.size(); ++i) {
      if (!range.chunked[i]) {
        after.push_back(std::move(run[i]));
      } else if (run[i].op->sums_tokens) {
        append_sum(std::move(run[i]), after);
      } else {
        p_.steps.push_back(std::move(run[i]));
      }
    }
    chunked.end = p_.steps.size();
    p_.chunked.push_back(chunked);
    std::move(after.begin(), after.end(), std::back_inserter(p_.steps));
    for (std::size_t b = 0; b < p_.buffers.size(); ++b) {
      if (b < touched_by_.size() && range.is_internal(root(static_cast<BufferId>(b))))
        p_.buffers[b].chunk = tokens_;
    }
  }

  /// Appends a sum over tokens. One whose gradient has fewer bits sums in the arithmetic; the step that
  /// rounds follows the range.
  void append_sum(Step s, std::vector<Step>& after) {
    const BufferId gradient = s.outputs[0];
    const Buffer b = p_.buffer(gradient);
    if (splits_leaves_) s.leaf = add_buffer(b, ":leaf");
    if (b.type != p_.arithmetic) {
      s.outputs[0] = add_buffer(b, ":micro");
      Step sum;
      sum.op = &graph::find_op("accumulate");
      sum.scope = s.scope;
      sum.phase = s.phase;
      sum.inputs = {{gradient, b.type}, {s.outputs[0], p_.arithmetic}};
      sum.outputs = {gradient};
      sum.labels = s.labels;
      sum.decided_by = s.decided_by;
      after.push_back(std::move(sum));
    }
    p_.steps.push_back(std::move(s));
  }

  BufferId add_buffer(const Buffer& like, const char* suffix) {
    Buffer b;
    b.name = like.name + suffix;
    b.shape = like.shape;
    b.type = p_.arithmetic;
    p_.buffers.push_back(std::move(b));
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  Program& p_;
  std::int64_t tokens_;
  bool splits_leaves_;
  std::vector<std::vector<std::size_t>> touched_by_;  // by root buffer: steps of the program, ascending
};

}  // namespace

void chunk_tokens(Program& program, std::int64_t tokens, std::int64_t longest_leaf) {
  Chunking(program, tokens, longest_leaf > tokens).run();
}

}  // namespace mantissa::plan
