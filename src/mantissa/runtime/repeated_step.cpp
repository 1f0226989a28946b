#include "mantissa/runtime/repeated_step.h"

#include <algorithm>
#include <cstring>

#include "mantissa/kernels/columns.h"

namespace mantissa::runtime {

std::vector<double> widened(const graph::Argument& a, const kernels::Context& ctx) {
  std::vector<double> wide(static_cast<std::size_t>(a.rows * a.width));
  const Matrix to{wide.data(), Scalar::f64, a.width};
  kernels::copy_columns(ctx, a.rows, a.width, a.in(), to);
  return wide;
}

bool overwrites(const graph::Call& call, const graph::Argument& in) {
  return std::ranges::any_of(call.outputs, [&](const graph::Argument& out) { return in.data == out.data; });
}

void RepeatedStep::keep(const graph::Call& call) {
  kept_.clear();
  for (const graph::Argument& in : call.inputs) keep(in, call);
  keep(call.addend, call);
}

void RepeatedStep::keep(const graph::Argument& in, const graph::Call& call) {
  if (in.integer || in.blocks || in.rows == 0 || !overwrites(call, in)) return;
  const auto elements = static_cast<std::size_t>((in.rows - 1) * in.row_stride() + in.width);
  const std::size_t bytes = elements * bytes_of(in.type);
  std::memcpy(kept_.emplace_back(in.data, Storage(bytes)).second.data(), in.data, bytes);
}

void RepeatedStep::restore(graph::Argument& in) const {
  const auto copy = std::ranges::find(kept_, in.data, [](const auto& kept) { return kept.first; });
  if (copy != kept_.end()) in.data = const_cast<std::byte*>(copy->second.data());
}

RepeatedStep::Before::Before(const graph::Call& after, const RepeatedStep& step)
    : inputs_(after.inputs.begin(), after.inputs.end()), call_(after) {
  for (graph::Argument& in : inputs_) step.restore(in);
  step.restore(call_.addend);
  call_.inputs = inputs_;
}

std::optional<std::vector<double>> RepeatedStep::wide(graph::Call call, const plan::Step& step,
                                                      std::size_t output) {
  const auto lost = [&](const graph::Argument& in) { return overwrites(call, in); };
  if (std::ranges::any_of(call.inputs, lost) || lost(call.addend)) return std::nullopt;
  std::vector<graph::Argument> outputs(call.outputs.begin(), call.outputs.end());
  std::vector<Storage> memory;
  for (graph::Argument& out : outputs) {
    memory.emplace_back(static_cast<std::size_t>(out.rows * out.width) * bytes_of(call.arithmetic));
    out.data = memory.back().data();
    out.stride = 0;
    out.type = out.rounded = call.arithmetic;
  }
  if (step.op->alias >= 0) {  // the op continues the values of this input
    const graph::Argument& continued = call.inputs[static_cast<std::size_t>(step.op->alias)];
    kernels::copy_columns(call.ctx, continued.rows, continued.width, continued.in(), outputs[0].out());
  }
  call.outputs = outputs;
  call.accumulate = false;
  call.losses = nullptr;
  step.op->run(call);
  return widened(outputs[output], call.ctx);
}

}  // namespace mantissa::runtime
