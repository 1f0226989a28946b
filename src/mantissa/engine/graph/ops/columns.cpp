// Splits of a tensor by features, and concatenations: copies that change no value.
#include "mantissa/kernels/columns.h"

#include <array>
#include <numeric>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

/// The names of parts, which distinguish their values.
constexpr std::array<std::string_view, 8> kPartNames = {"0", "1", "2", "3", "4", "5", "6", "7"};

std::int64_t total(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

Shape with_width(const Shape& shape, std::int64_t width) {
  std::vector<Dim> dims = shape.dims();
  dims.back().size = width;
  return Shape(std::move(dims));
}

/// Returns the parts of the first input, with the column counts of attribute "sizes".
std::vector<OutputSpec> parts_of(const NodeView& n, Role role) {
  const std::vector<std::int64_t> sizes = n.attributes.integers("sizes");
  if (sizes.size() > kPartNames.size() || total(sizes) != n.shape(0).last()) {
    throw ShapeError(
        "split: \"{}\" is {}, but its {} parts have {} columns; expected at most {} parts with all columns",
        n.graph.value(n.inputs[0]).name, n.shape(0).str(), sizes.size(), total(sizes), kPartNames.size());
  }
  std::vector<OutputSpec> specs;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    specs.push_back({with_width(n.shape(0), sizes[i]), role, role == Role::like ? n.inputs[0] : kNone,
                     ValueKind::activation, kPartNames[i]});
  }
  return specs;
}

/// Copies the input's columns into consecutive outputs.
void run_split(const Call& c) {
  std::int64_t first = 0;
  for (const Argument& part : c.outputs) {
    kernels::copy_columns(c.ctx, part.rows, part.width, kernels::columns_from(c.inputs[0].in(), first),
                          part.out());
    first += part.width;
  }
}

// ---- split: input x [·, width]; outputs the parts [·, size], in x's format

std::vector<OutputSpec> infer_split(const NodeView& n) {
  return parts_of(n, Role::like);
}

void gradient_split(GradientBuilder& b) {
  std::vector<ValueId> gradients;
  std::vector<std::int64_t> parts;
  for (std::size_t i = 0; i < b.node().outputs.size(); ++i) {
    const ValueId d = b.gradient(i);
    if (d == kNone) continue;
    gradients.push_back(d);
    parts.push_back(static_cast<std::int64_t>(i));
  }
  const Attributes attributes{{"sizes", b.node().attributes.integers("sizes")}, {"parts", parts}};
  b.contribute(0, b.emit("split.grad", std::move(gradients), attributes).front());
}

// ---- split.grad: inputs are the gradients of the parts listed in "parts", ascending; output [·, Σ sizes],
// zero for other parts

std::vector<OutputSpec> infer_split_grad(const NodeView& n) {
  return {{with_width(n.shape(0), total(n.attributes.integers("sizes"))), Role::arithmetic}};
}

void run_split_grad(const Call& c) {
  const std::vector<std::int64_t> sizes = c.attributes.integers("sizes"),
                                  parts = c.attributes.integers("parts");
  const Argument& out = c.outputs[0];
  std::int64_t first = 0;
  std::size_t input = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Matrix columns = kernels::columns_from(out.out(), first);
    if (input < parts.size() && parts[input] == static_cast<std::int64_t>(i)) {
      const Argument& part = c.inputs[input++];
      kernels::copy_columns(c.ctx, part.rows, part.width, part.in(), columns);
    } else {
      kernels::zero_columns(c.ctx, out.rows, sizes[i], columns);
    }
    first += sizes[i];
  }
}

// ---- concat: inputs the parts [·, size]; output [·, Σ size]

std::vector<OutputSpec> infer_concat(const NodeView& n) {
  std::int64_t width = 0;
  for (std::size_t i = 0; i < n.inputs.size(); ++i) {
    if (with_width(n.shape(i), 1) != with_width(n.shape(0), 1)) {
      throw ShapeError("concat: \"{}\" is {}, but \"{}\" is {}; only their last sizes may differ",
                       n.graph.value(n.inputs[i]).name, n.shape(i).str(), n.graph.value(n.inputs[0]).name,
                       n.shape(0).str());
    }
    width += n.shape(i).last();
  }
  return {{with_width(n.shape(0), width), Role::compute}};
}

void run_concat(const Call& c) {
  std::int64_t first = 0;
  for (const Argument& part : c.inputs) {
    kernels::copy_columns(c.ctx, part.rows, part.width, part.in(),
                          kernels::columns_from(c.outputs[0].out(), first));
    first += part.width;
  }
}

void gradient_concat(GradientBuilder& b) {
  std::vector<std::int64_t> sizes;
  for (const ValueId part : b.node().inputs) sizes.push_back(b.graph().value(part).shape.last());
  const std::vector<ValueId> d = b.emit("concat.grad", {b.gradient(0)}, {{"sizes", sizes}});
  for (std::size_t i = 0; i < d.size(); ++i) b.contribute(i, d[i]);
}

// ---- concat.grad: input dy [·, Σ size]; outputs the parts' gradients

std::vector<OutputSpec> infer_concat_grad(const NodeView& n) {
  return parts_of(n, Role::arithmetic);
}

}  // namespace

const OpDef kSplit = {
    .id = "split",
    .op = "split",
    .doc = "parts of x by columns, copied",
    .kind = OpKind::move,
    .duty = Duty::split,
    .strided = {.inputs = kAllOperands, .outputs = kAllOperands},
    .per_token = true,
    .infer = infer_split,
    .gradient = gradient_split,
    .run = run_split,
};

const OpDef kSplitGrad = {
    .id = "split.grad",
    .op = "split",
    .doc = "the gradients of the parts, concatenated; zero for parts without a gradient",
    .kind = OpKind::move,
    .duty = Duty::join,
    .strided = {.inputs = kAllOperands, .outputs = kAllOperands},
    .per_token = true,
    .infer = infer_split_grad,
    .run = run_split_grad,
};

const OpDef kConcat = {
    .id = "concat",
    .op = "concat",
    .doc = "values concatenated by columns, rounded to compute",
    .kind = OpKind::move,
    .duty = Duty::join,
    .strided = {.inputs = kAllOperands, .outputs = kAllOperands},
    .per_token = true,
    .infer = infer_concat,
    .gradient = gradient_concat,
    .run = run_concat,
};

const OpDef kConcatGrad = {
    .id = "concat.grad",
    .op = "concat",
    .doc = "the gradient of each part, copied",
    .kind = OpKind::move,
    .duty = Duty::split,
    .strided = {.inputs = kAllOperands, .outputs = kAllOperands},
    .per_token = true,
    .infer = infer_concat_grad,
    .run = run_split,
};

}  // namespace mantissa::graph
