#include "mantissa/engine/runtime/router_record.h"

#include <cstddef>
#include <span>

namespace mantissa::runtime {

RouterRecord::RouterRecord(Executor& executor) : executor_(executor) {
  executor.after_step = [this](const plan::Step& step, const graph::Call& call) {
    if (step.phase != graph::Phase::forward || !step.op->routes) return;
    const graph::Argument& choice = call.outputs[1];
    Choices& of = choices_[step.scope];
    of.chosen = choice.width;
    const std::span ids(static_cast<const std::int32_t*>(choice.data),
                        static_cast<std::size_t>(choice.rows * choice.width));
    of.experts.insert(of.experts.end(), ids.begin(), ids.end());
  };
}

}  // namespace mantissa::runtime
