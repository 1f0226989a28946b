#include "mantissa/setup/forecast/shared_rows.h"

#include "mantissa/engine/graph/op.h"

namespace mantissa::forecast {
namespace {

bool is_backward(const plan::Step& step) {
  return step.op->gradient == nullptr;
}

double width(const plan::Buffer& b) {
  return static_cast<double>(b.shape.last());
}

double bytes(Scalar type) {
  return static_cast<double>(bytes_of(type));
}

/// Returns the bytes of keys, values and contributions to their gradients.
double key_bytes(const plan::Program& program, const plan::Step& step, int part, int parts) {
  double passed = 0, collected = 0;  // blocks that the rank sends on, and contributions that it sends
  for (int block = 0; block <= 2 * parts - 1 - part; ++block) {
    const bool late = block >= parts;
    const int owner = late ? 2 * parts - 1 - block : block;
    if (part >= owner && part + 1 < parts && !late) ++passed;
    if (part <= owner && part > 0) ++passed;
    if (owner == part) continue;
    if (2 * parts - 1 - part > block) ++collected;
    if (part > block) ++collected;
  }
  const plan::Buffer &k = program.buffer(step.inputs[1].buffer), &v = program.buffer(step.inputs[2].buffer);
  const double elements = static_cast<double>(program.token_capacity) / 2 * width(k);  // of a block
  const double gradients = is_backward(step) ? collected * 2 * bytes(program.arithmetic) : 0;
  return elements * (passed * (bytes(k.type) + bytes(v.type)) + gradients);
}

/// Returns the bytes of what a row sends from one block to its neighbour.
double boundary_bytes(const plan::Program& program, const plan::Step& step) {
  const plan::Buffer& first = program.buffer(step.inputs.front().buffer);
  switch (step.op->passed) {
    case graph::Passed::state: {
      const double elements = static_cast<double>(step.attributes.integer("heads")) *
                              static_cast<double>(step.attributes.integer("key_dim")) *
                              static_cast<double>(step.attributes.integer("value_dim"));
      return elements * bytes(program.arithmetic) * (is_backward(step) ? 2 : 1);
    }
    case graph::Passed::token:
      return width(first) * bytes(first.type);
    case graph::Passed::token_gradient:
      return width(program.buffer(step.outputs.front())) * bytes(program.arithmetic);
    default:
      return 0;
  }
}

}  // namespace

SharedRowBytes shared_row_bytes(const plan::Program& program, std::int64_t rows, int part, int parts) {
  const int neighbours = (part > 0 ? 1 : 0) + (part + 1 < parts ? 1 : 0);
  SharedRowBytes all;
  for (const plan::Step& step : program.steps) {
    if (step.phase == graph::Phase::evaluate) continue;
    if (step.op->passed == graph::Passed::keys) {
      all.keys += key_bytes(program, step, part, parts);
    } else {
      all.states += static_cast<double>(rows * neighbours) * boundary_bytes(program, step);
    }
  }
  return all;
}

}  // namespace mantissa::forecast
