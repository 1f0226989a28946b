// Fuses consecutive pointwise steps to one program, run tile by tile in cache, including the roundings
// between them.
#include <algorithm>

#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/uses.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::plan {
namespace {

using kernels::Wire;

bool is_pointwise(const Step& s) {
  return s.op->run == graph::find_op("fused").run && s.op->alias == graph::kNone;
}

class Fusing {
 public:
  explicit Fusing(Program& program) : p_(program), uses_(program) {}

  void run() {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      // A success can enable another. The step at i is then the fused one.
      while (join_with_a_producer(i)) {
      }
    }
    std::erase_if(p_.steps, [](const Step& s) { return s.outputs.empty(); });
  }

 private:
  /// Fuses the step at `i` with a step that computes one of its inputs, if possible.
  bool join_with_a_producer(std::size_t i) {
    if (p_.steps[i].outputs.empty() || !is_pointwise(p_.steps[i])) return false;
    for (const Operand& o : p_.steps[i].inputs) {
      const std::int64_t w = uses_.writer(o.buffer);
      if (w >= 0 && can_join(static_cast<std::size_t>(w), i) && join(static_cast<std::size_t>(w), i))
        return true;
    }
    return false;
  }

  /// The producer moves down to the consumer, so no step in between may read its results or write its inputs.
  bool can_join(std::size_t producer, std::size_t consumer) const {
    const Step& a = p_.steps[producer];
    const Step& b = p_.steps[consumer];
    if (!is_pointwise(a) || a.phase != b.phase) return false;
    if (p_.buffer(a.outputs[0]).shape != p_.buffer(b.outputs[0]).shape) return false;
    for (const BufferId made : a.outputs) {
      const std::vector<std::size_t>& readers = uses_.readers(made);
      const auto next = std::upper_bound(readers.begin(), readers.end(), producer);
      if (next != readers.end() && *next < consumer) return false;
    }
    return true;
  }

  bool read_elsewhere(BufferId b, std::size_t consumer) const {
    if (is_output(p_, b)) return true;
    const std::vector<std::size_t>& readers = uses_.readers(b);
    return std::any_of(readers.begin(), readers.end(), [&](std::size_t r) { return r != consumer; });
  }

  std::vector<Wire> wires(const Step& a, const Step& b) const {
    std::vector<Wire> wires;
    for (const Operand& o : b.inputs) {
      Wire w;
      const auto made = std::find(a.outputs.begin(), a.outputs.end(), o.buffer);
      const auto shared = std::find_if(a.inputs.begin(), a.inputs.end(),
                                       [&](const Operand& x) { return x.buffer == o.buffer; });
      if (made != a.outputs.end()) {
        w = {Wire::From::output, static_cast<std::uint8_t>(made - a.outputs.begin()),
             p_.buffer(o.buffer).type};
      } else if (shared != a.inputs.end()) {
        w = {Wire::From::input, static_cast<std::uint8_t>(shared - a.inputs.begin()),
             p_.buffer(o.buffer).type};
      }
      wires.push_back(w);
    }
    return wires;
  }

  bool join(std::size_t producer, std::size_t consumer) {
    Step& a = p_.steps[producer];
    Step& b = p_.steps[consumer];
    const std::vector<Wire> how = wires(a, b);
    std::vector<bool> kept;
    for (const BufferId out : a.outputs) kept.push_back(read_elsewhere(out, consumer));
    const std::optional<kernels::Expression> joined =
        kernels::fuse(a.expression, how, b.expression, kept, p_.arithmetic);
    if (!joined) return false;
    Step fused = b;
    fused.decided_by = a.decided_by;
    add_deciders(fused, b);
    fused.op = &graph::find_op("fused");
    fused.expression = *joined;
    fused.inputs = a.inputs;
    for (std::size_t i = 0; i < b.inputs.size(); ++i) {
      if (how[i].from == Wire::From::own) fused.inputs.push_back(b.inputs[i]);
    }
    fused.outputs.clear();
    fused.labels.clear();
    const auto add_output = [&](const Step& from, std::size_t o) {
      const bool labelled = o < from.labels.size() && !from.labels[o].empty();
      fused.outputs.push_back(from.outputs[o]);
      fused.labels.push_back(labelled ? from.labels[o] : std::string(from.op->op));
    };
    for (std::size_t o = 0; o < a.outputs.size(); ++o) {
      if (kept[o]) add_output(a, o);
    }
    for (std::size_t o = 0; o < b.outputs.size(); ++o) add_output(b, o);
    if (fused.outputs.size() == 1) fused.labels.clear();
    fused.parts.clear();
    for (const Step* part : {&a, &b}) {
      if (part->parts.empty()) fused.parts.emplace_back(part->op->id);
      fused.parts.insert(fused.parts.end(), part->parts.begin(), part->parts.end());
    }
    for (const Operand& o : a.inputs) {
      uses_.remove_reader(o.buffer, producer);
      uses_.add_reader(o.buffer, consumer);
    }
    for (std::size_t o = 0; o < a.outputs.size(); ++o) {
      uses_.remove_reader(a.outputs[o], consumer);
      uses_.set_writer(a.outputs[o], kept[o] ? static_cast<std::int64_t>(consumer) : -1);
    }
    b = std::move(fused);
    a.inputs.clear();
    a.outputs.clear();
    a.addend = kNoBuffer;
    return true;
  }

  Program& p_;
  Uses uses_;
};

}  // namespace

void fuse_pointwise(Program& program) {
  Fusing(program).run();
}

}  // namespace mantissa::plan
