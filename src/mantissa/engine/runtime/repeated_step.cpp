#include "mantissa/engine/runtime/repeated_step.h"

#include <algorithm>
#include <cstring>

#include "mantissa/engine/runtime/packed.h"
#include "mantissa/engine/runtime/quantized.h"
#include "mantissa/kernels/columns.h"

namespace mantissa::runtime {
namespace {

/// Makes room for `bytes`. Does not keep what was there.
void grow(Storage& memory, std::size_t bytes) {
  if (memory.size() >= bytes) return;
  memory = Storage();  // frees the old memory before it takes more
  memory = Storage(bytes);
}

}  // namespace

std::vector<double> widened(const graph::Argument& a, const kernels::Context& ctx) {
  std::vector<double> wide(static_cast<std::size_t>(a.rows * a.width));
  const Matrix to{wide.data(), Scalar::f64, a.width};
  if (a.quants) {
    const std::vector<std::byte> elements =
        quantized_elements(ctx, a.data, *a.quants, a.type, a.rows, a.width);
    kernels::copy_columns(ctx, a.rows, a.width, {elements.data(), a.type, a.width}, to);
    return wide;
  }
  if (a.blocks || a.codes != StateCodes::none) {
    std::vector<float> elements(wide.size());
    unpack_elements(a, 0, elements.size(), elements.data());
    std::ranges::copy(elements, wide.begin());
    return wide;
  }
  kernels::copy_columns(ctx, a.rows, a.width, a.in(), to);
  return wide;
}

bool overwrites(const graph::Call& call, const graph::Argument& in) {
  return std::ranges::any_of(call.outputs, [&](const graph::Argument& out) { return in.data == out.data; });
}

void RepeatedStep::keep(const graph::Call& call) {
  clear();
  for (const graph::Argument& in : call.inputs) keep(in, call);
  keep(call.addend, call);
  if (!call.accumulate) return;
  for (const graph::Argument& out : call.outputs) {
    if (!out.integer && !out.blocks && out.codes == StateCodes::none && !holds(out.type, call.arithmetic) &&
        before(out) == nullptr)
      copy(out, call.ctx);
  }
}

void RepeatedStep::keep(const graph::Argument& in, const graph::Call& call) {
  if (in.integer || in.blocks || in.rows == 0 || !overwrites(call, in)) return;
  copy(in, call.ctx);
}

void RepeatedStep::copy(const graph::Argument& in, const kernels::Context& ctx) {
  if (kept_ == copies_.size()) copies_.emplace_back();
  Copy& copy = copies_[kept_++];
  copy.of = in.data;
  if (in.codes != StateCodes::none) {
    const std::size_t bytes =
        BlockedState{in.codes, nullptr, static_cast<std::size_t>(in.rows * in.width)}.bytes();
    grow(copy.memory, bytes);
    std::memcpy(copy.memory.data(), in.data, bytes);
    return;
  }
  const auto elements = static_cast<std::size_t>((in.rows - 1) * in.row_stride() + in.width);
  grow(copy.memory, elements * bytes_of(in.type));
  kernels::copy_columns(ctx, in.rows, in.width, in.in(), {copy.memory.data(), in.type, in.row_stride()});
}

void* RepeatedStep::before(const graph::Argument& out) const {
  const auto end = copies_.begin() + static_cast<std::ptrdiff_t>(kept_);
  const auto copy = std::find_if(copies_.begin(), end, [&](const Copy& c) { return c.of == out.data; });
  return copy == end ? nullptr : copy->memory.data();
}

void RepeatedStep::restore(graph::Argument& in) const {
  const auto end = copies_.begin() + static_cast<std::ptrdiff_t>(kept_);
  const auto copy = std::find_if(copies_.begin(), end, [&](const Copy& c) { return c.of == in.data; });
  if (copy != end) in.data = copy->memory.data();
}

RepeatedStep::Before::Before(const graph::Call& after, const RepeatedStep& step)
    : inputs_(after.inputs.begin(), after.inputs.end()), call_(after) {
  for (graph::Argument& in : inputs_) step.restore(in);
  step.restore(call_.addend);
  call_.inputs = inputs_;
}

std::span<const graph::Argument> UnroundedResults::compute_with_logits(const graph::Call& call,
                                                                       const plan::Step& step,
                                                                       const RepeatedStep* kept) {
  rounds_logits_ = step.op->kind == graph::OpKind::head;
  const std::span<const graph::Argument> results = compute(call, step, kept);
  rounds_logits_ = false;
  return results;
}

std::span<const graph::Argument> UnroundedResults::compute(graph::Call call, const plan::Step& step,
                                                           const RepeatedStep* kept) {
  if (call.leaf != nullptr) return {};  // the sum of the leaf has changed
  const bool together = call.ring != nullptr && step.op->passed != graph::Passed::nothing;
  if (together) return {};  // the other ranks do not run it again
  const auto lost = [&](const graph::Argument& in) { return overwrites(call, in); };
  if (std::ranges::any_of(call.inputs, lost) || lost(call.addend)) return {};
  outputs_.assign(call.outputs.begin(), call.outputs.end());
  if (memory_.size() < outputs_.size()) memory_.resize(outputs_.size());
  scales_.resize(outputs_.size());
  for (std::size_t o = 0; o < outputs_.size(); ++o) {
    graph::Argument& out = outputs_[o];
    grow(memory_[o], static_cast<std::size_t>(out.rows * out.width) * bytes_of(call.arithmetic));
    out.data = memory_[o].data();
    out.stride = 0;
    out.blocks.reset();
    out.codes = StateCodes::none;
    out.type = call.arithmetic;
    if (!rounds_logits_) out.rounded = call.arithmetic;
    if (out.scale == nullptr) continue;
    // The scale that the step used: repeating a step with `current` scaling would compute one that fits the
    // arithmetic, for the readers of the result too.
    scales_[o] = *out.scale;
    scales_[o].recording = false;
    out.scale = &scales_[o];
  }
  bool adds = false;
  for (std::size_t o = 0; o < outputs_.size() && call.accumulate && kept != nullptr; ++o) {
    const void* before = kept->before(call.outputs[o]);
    if (before == nullptr) continue;
    const graph::Argument& old = call.outputs[o];
    kernels::copy_columns(call.ctx, old.rows, old.width, {before, old.type, old.row_stride()},
                          outputs_[o].out());
    adds = true;
  }
  if (step.op->alias >= 0 && !adds) {  // the op continues the values of this input
    const graph::Argument& continued = call.inputs[static_cast<std::size_t>(step.op->alias)];
    kernels::copy_columns(call.ctx, continued.rows, continued.width, continued.in(), outputs_[0].out());
  }
  call.outputs = outputs_;
  call.accumulate = adds;
  call.repeated = true;
  call.losses = nullptr;
  step.op->run(call);
  return outputs_;
}

}  // namespace mantissa::runtime
