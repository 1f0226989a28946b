// Pointwise ops: each is a small expression; the plan may chain them into one program (op "fused").
#include "mantissa/kernels/pointwise.h"

#include <fmt/format.h>

#include <array>

#include "mantissa/base/error.h"
#include "mantissa/graph/ops/ops.h"
#include "mantissa/kernels/reference/pointwise.h"

namespace mantissa::graph {
namespace {

using kernels::Expression;
using kernels::Instruction;
using kernels::Opcode;

Instruction load(std::uint8_t dst, std::uint8_t input) {
  return {.op = Opcode::load, .dst = dst, .index = input};
}
Instruction store(std::uint8_t a, std::uint8_t output) {
  return {.op = Opcode::store, .a = a, .index = output};
}
Instruction unary(Opcode op, std::uint8_t dst, std::uint8_t a) {
  return {.op = op, .dst = dst, .a = a};
}
Instruction binary(Opcode op, std::uint8_t dst, std::uint8_t a, std::uint8_t b) {
  return {.op = op, .dst = dst, .a = a, .b = b};
}

/// ((in0 + in1) + in2) …
Expression sum_of(std::size_t inputs) {
  Expression e{{load(0, 0)}, static_cast<std::uint8_t>(inputs), 1};
  for (std::size_t i = 1; i < inputs; ++i) {
    e.code.push_back(load(1, static_cast<std::uint8_t>(i)));
    e.code.push_back(binary(Opcode::add, 0, 0, 1));
  }
  e.code.push_back(store(0, 0));
  return e;
}

Expression sum_expression(const NodeView& n) {
  return sum_of(n.inputs.size());
}

/// silu(gate) · up
Expression swiglu_expression(const NodeView&) {
  return {{load(0, 0), unary(Opcode::sigmoid, 1, 0), binary(Opcode::mul, 0, 0, 1), load(1, 1),
           binary(Opcode::mul, 0, 0, 1), store(0, 0)},
          2,
          1};
}

/// With s = sigmoid(gate): dgate = dy·up·s·(1 + gate·(1 − s)), dup = dy·gate·s.
Expression swiglu_grad_expression(const NodeView&) {
  Instruction one{.op = Opcode::constant, .dst = 4, .value = 1.0};
  return {
      {load(0, 0), load(1, 1), load(2, 2), unary(Opcode::sigmoid, 3, 0), one,
       // r5 = 1 + gate·(1 − s)
       binary(Opcode::sub, 5, 4, 3), Instruction{.op = Opcode::fma, .dst = 5, .a = 0, .b = 5, .c = 4},
       // dgate
       binary(Opcode::mul, 5, 5, 3), binary(Opcode::mul, 5, 5, 1), binary(Opcode::mul, 5, 5, 2), store(5, 0),
       // dup
       binary(Opcode::mul, 0, 0, 3), binary(Opcode::mul, 0, 0, 2), store(0, 1)},
      3,
      2};
}

void check_same_shape(const NodeView& n, std::string_view op) {
  for (std::size_t i = 1; i < n.inputs.size(); ++i) {
    if (n.shape(i) != n.shape(0)) {
      throw ShapeError(
          fmt::format("{}: inputs {} and {} must have one shape", op, n.shape(0).str(), n.shape(i).str()));
    }
  }
}

std::vector<OutputSpec> infer_add(const NodeView& n) {
  check_same_shape(n, "add");
  return {{n.shape(0), Role::residual}};
}

std::vector<OutputSpec> infer_swiglu(const NodeView& n) {
  check_same_shape(n, "swiglu");
  return {{n.shape(0), Role::compute}};
}

std::vector<OutputSpec> infer_swiglu_grad(const NodeView& n) {
  return {{n.shape(0), Role::arithmetic, kNone, ValueKind::activation, "gate"},
          {n.shape(1), Role::arithmetic, kNone, ValueKind::activation, "up"}};
}

std::vector<OutputSpec> infer_sum(const NodeView& n) {
  check_same_shape(n, "sum");
  return {{n.shape(0), Role::like, static_cast<ValueId>(n.attributes.integer("of"))}};
}

std::vector<OutputSpec> infer_sum_uses(const NodeView& n) {
  check_same_shape(n, "sum_uses");
  return {{n.shape(0), Role::weight_gradient, static_cast<ValueId>(n.attributes.integer("of")),
           ValueKind::weight_gradient}};
}

std::vector<OutputSpec> infer_round_kv(const NodeView& n) {
  return {{n.shape(0), Role::kv}};
}

std::vector<OutputSpec> infer_cast(const NodeView& n) {
  return {{n.shape(0), Role::arithmetic}};
}

Cost cost(const NodeView& n, const Sizes&) {
  return {static_cast<double>(n.shape(0).count())};
}

void run_pointwise(const Call& c) {
  std::array<kernels::PointwiseInput, 8> inputs;
  std::array<kernels::PointwiseOutput, 4> outputs;
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    inputs[i] = {c.inputs[i].data, c.inputs[i].type, kernels::Broadcast::none};
  }
  for (std::size_t i = 0; i < c.outputs.size(); ++i) outputs[i] = {c.outputs[i].data, c.outputs[i].type};
  kernels::pointwise(c.ctx, *c.expression, c.outputs[0].rows, c.outputs[0].width,
                     std::span(inputs).first(c.inputs.size()), std::span(outputs).first(c.outputs.size()));
}

void gradient_add(GradientBuilder& b) {
  b.contribute(0, b.gradient(0));
  b.contribute(1, b.gradient(0));
}

void gradient_pass_through(GradientBuilder& b) {
  b.contribute(0, b.gradient(0));
}

void gradient_swiglu(GradientBuilder& b) {
  const std::vector<ValueId> d = b.emit("swiglu.grad", {b.input(0), b.input(1), b.gradient(0)});
  b.contribute(0, d[0]);
  b.contribute(1, d[1]);
}

void reference_pointwise(const ReferenceCall& c) {
  std::vector<double> element(c.inputs.size());
  for (std::size_t e = 0; e < c.outputs[0].values.size(); ++e) {
    for (std::size_t i = 0; i < element.size(); ++i) element[i] = c.inputs[i].values[e];
    const std::vector<double> results = kernels::reference::evaluate(*c.expression, element);
    for (std::size_t o = 0; o < results.size(); ++o) c.outputs[o].values[e] = results[o];
  }
}

}  // namespace

const OpDef kAdd = {
    .id = "add",
    .op = "add",
    .doc = "residual + branch in f32, rounded to residual",
    .reads = {Read::value},
    .in_place = true,
    .infer = infer_add,
    .gradient = gradient_add,
    .cost = cost,
    .expression = sum_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kSwiglu = {
    .id = "swiglu",
    .op = "swiglu",
    .doc = "silu(gate)·up in f32, rounded once",
    .reads = {Read::value},
    .in_place = true,
    .infer = infer_swiglu,
    .gradient = gradient_swiglu,
    .cost = cost,
    .expression = swiglu_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kSwigluGrad = {
    .id = "swiglu.grad",
    .op = "swiglu",
    .doc = "dgate, dup in f32, unrounded contributions",
    .reads = {Read::value},
    .in_place = true,
    .infer = infer_swiglu_grad,
    .cost = cost,
    .expression = swiglu_grad_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kSum = {
    .id = "sum",
    .op = "sum",
    .doc = "contributions to a gradient summed in f32, rounded once to the value's format",
    .reads = {Read::value},
    .in_place = true,
    .infer = infer_sum,
    .cost = cost,
    .expression = sum_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kSumUses = {
    .id = "sum_uses",
    .op = "sum",
    .doc = "weight gradients of a tied weight's uses, added once per optimizer step",
    .reads = {Read::value},
    .alias = 0,
    .infer = infer_sum_uses,
    .cost = cost,
    .expression = sum_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kCast = {
    .id = "cast",
    .op = "cast",
    .doc = "a change of format that no kernel could do while loading or storing",
    .reads = {Read::value},
    .infer = infer_cast,
    .cost = cost,
    .expression = sum_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kRoundKv = {
    .id = "kv",
    .op = "kv",
    .doc = "keys or values rounded to the cache's format; the gradient passes through",
    .reads = {Read::value},
    .infer = infer_round_kv,
    .gradient = gradient_pass_through,
    .cost = cost,
    .expression = sum_expression,
    .run = run_pointwise,
    .reference = reference_pointwise,
};

const OpDef kFused = {
    .id = "fused",
    .op = "fused",
    .doc = "a chain of pointwise ops as one program, with the roundings of its parts",
    .reads = {Read::value},
    .run = run_pointwise,
    .reference = reference_pointwise,
};

}  // namespace mantissa::graph
