#include "kernels/reference/pointwise.h"

#include <array>
#include <cmath>
#include <numbers>

#include "mantissa/core/numeric/convert.h"

namespace mantissa::kernels::reference {
namespace {

double result(const Instruction& in, double a, double b, double c, std::span<const double> inputs) {
  switch (in.op) {
    case Opcode::load:
      return inputs[in.index];
    case Opcode::constant:
      return in.value;
    case Opcode::add:
      return a + b;
    case Opcode::sub:
      return a - b;
    case Opcode::mul:
      return a * b;
    case Opcode::div:
      return a / b;
    case Opcode::fma:
      return std::fma(a, b, c);
    case Opcode::neg:
      return -a;
    case Opcode::exp:
      return std::exp(a);
    case Opcode::log:
      return std::log(a);
    case Opcode::tanh:
      return std::tanh(a);
    case Opcode::normal_cdf:
      return std::erfc(-a / std::numbers::sqrt2) / 2;
    case Opcode::sigmoid:
      return 1 / (1 + std::exp(-a));
    case Opcode::rsqrt:
      return 1 / std::sqrt(a);
    case Opcode::relu:
      return a <= 0 ? 0 : a;
    case Opcode::sqrt:
      return std::sqrt(a);
    case Opcode::abs:
      return std::abs(a);
    case Opcode::sign:
      return a > 0 ? 1 : a < 0 ? -1 : a;
    case Opcode::max:
      return a < b ? b : a;
    case Opcode::min:
      return b < a ? b : a;
    case Opcode::move:
      return a + b;
    case Opcode::lost:
      return c - (a - b);
    case Opcode::round:
      round_row(&a, 1, in.format);
      return a;
    case Opcode::store:
      return a;
  }
  return a;
}

}  // namespace

std::vector<double> evaluate(const Expression& program, std::span<const double> inputs) {
  std::array<double, 256> r{};
  std::vector<double> outputs(program.outputs);
  for (const Instruction& in : program.code) {
    const double value = result(in, r[in.a], r[in.b], r[in.c], inputs);
    if (in.op == Opcode::store || in.op == Opcode::move) outputs[in.index] = value;
    if (in.op != Opcode::store) r[in.dst] = value;
  }
  return outputs;
}

}  // namespace mantissa::kernels::reference
