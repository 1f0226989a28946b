#include "mantissa/kernels/expression.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

#include "mantissa/core/base/error_text.h"

namespace mantissa::kernels {

using Reg = ExpressionBuilder::Reg;

namespace {

/// Returns true if an instruction writes an output.
bool writes(Opcode op) {
  return op == Opcode::store || op == Opcode::move;
}

/// Returns true if the result of an instruction may need more bits than its operands have.
bool rounds(Opcode op) {
  switch (op) {
    case Opcode::load:
    case Opcode::constant:
    case Opcode::neg:
    case Opcode::relu:
    case Opcode::abs:
    case Opcode::sign:
    case Opcode::max:
    case Opcode::min:
    case Opcode::round:
    case Opcode::store:
    case Opcode::move:
    case Opcode::lost:
      return false;
    default:
      return true;
  }
}

}  // namespace

Reg ExpressionBuilder::load(std::size_t input) {
  return add_value({.op = Opcode::load, .index = input});
}

Reg ExpressionBuilder::constant(double value) {
  return add_value({.op = Opcode::constant, .value = value});
}

Reg ExpressionBuilder::fma(Reg a, Reg b, Reg c) {
  return add_value({.op = Opcode::fma, .a = a.id, .b = b.id, .c = c.id});
}

Reg ExpressionBuilder::round(Reg a, Scalar format) {
  return add_value({.op = Opcode::round, .format = format, .a = a.id});
}

void ExpressionBuilder::store(Reg a, std::size_t output) {
  values_.push_back({.op = Opcode::store, .a = a.id, .index = output});
}

Reg ExpressionBuilder::move(Reg a, Reg b, std::size_t output) {
  return add_value({.op = Opcode::move, .a = a.id, .b = b.id, .index = output});
}

Reg ExpressionBuilder::lost(Reg a, Reg b, Reg c) {
  return add_value({.op = Opcode::lost, .a = a.id, .b = b.id, .c = c.id});
}

Reg ExpressionBuilder::add_value(const Value& v) {
  const auto same = [&](const Value& w) {
    return w.op == v.op && w.format == v.format && w.a == v.a && w.b == v.b && w.c == v.c &&
           w.index == v.index &&
           std::bit_cast<std::uint64_t>(w.value) == std::bit_cast<std::uint64_t>(v.value);
  };
  const auto found = std::ranges::find_if(values_, same);
  const auto id = static_cast<std::uint32_t>(found - values_.begin());
  if (found == values_.end()) values_.push_back(v);
  return {id};
}

std::vector<Reg> ExpressionBuilder::append(const Expression& program, std::span<const Reg> inputs) {
  assert(inputs.size() == program.inputs);
  std::array<Reg, kMaxRegisters> r;
  std::vector<Reg> outputs(program.outputs);
  for (const Instruction& in : program.code) {
    switch (in.op) {
      case Opcode::load:
        r[in.dst] = inputs[in.index];
        break;
      case Opcode::store:
        outputs[in.index] = r[in.a];
        break;
      case Opcode::constant:
        r[in.dst] = constant(in.value);
        break;
      case Opcode::round:
        r[in.dst] = round(r[in.a], in.format);
        break;
      case Opcode::fma:
        r[in.dst] = fma(r[in.a], r[in.b], r[in.c]);
        break;
      case Opcode::move:
      case Opcode::lost:
        assert(false && "sweeps are not fused");
        break;
      case Opcode::add:
      case Opcode::sub:
      case Opcode::mul:
      case Opcode::div:
      case Opcode::max:
      case Opcode::min:
        r[in.dst] = binary(in.op, r[in.a], r[in.b]);
        break;
      default:
        r[in.dst] = unary(in.op, r[in.a]);
    }
  }
  return outputs;
}

/// Returns the values in order of computation: the written order, without unused values, and with loads and
/// constants just before their first use, which shortens the time they occupy a register.
std::vector<std::uint32_t> ExpressionBuilder::schedule() const {
  std::vector<bool> needed(values_.size(), false), placed(values_.size(), false);
  for (std::size_t i = values_.size(); i-- > 0;) {
    const Value& v = values_[i];
    if (writes(v.op)) needed[i] = true;
    for (const std::uint32_t operand : {v.a, v.b, v.c}) {
      if (needed[i] && operand != kNone) needed[operand] = true;
    }
  }
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    if (!needed[i] || v.op == Opcode::load || v.op == Opcode::constant) continue;
    for (const std::uint32_t operand : {v.a, v.b, v.c}) {
      // Every other operand was placed earlier.
      if (operand == kNone || placed[operand]) continue;
      order.push_back(operand);
      placed[operand] = true;
    }
    order.push_back(i);
    placed[i] = true;
  }
  return order;
}

/// Linear scan: a value gets the lowest free register and releases it at its last use.
struct ExpressionBuilder::Allocation {
  explicit Allocation(std::size_t values) : reg(values, 0), uses(values, 0) {}

  bool take(std::uint32_t value) {
    const auto slot = std::ranges::find(taken, false);
    if (slot == taken.end()) return false;
    *slot = true;
    reg[value] = static_cast<std::uint8_t>(slot - taken.begin());
    return true;
  }
  void use(std::uint32_t value) {
    if (--uses[value] == 0) taken[reg[value]] = false;
  }

  std::array<bool, kMaxRegisters> taken{};
  std::vector<std::uint8_t> reg;
  std::vector<std::size_t> uses;
};

std::optional<Expression> ExpressionBuilder::try_build() const {
  const std::vector<std::uint32_t> order = schedule();
  Allocation registers(values_.size());
  const auto for_operands = [&](const Value& v, const auto& f) {
    for (const std::uint32_t operand : {v.a, v.b, v.c}) {
      if (operand != kNone) f(operand);
    }
  };
  for (const std::uint32_t i : order) for_operands(values_[i], [&](std::uint32_t o) { ++registers.uses[o]; });
  Expression e;
  for (const std::uint32_t i : order) {
    const Value& v = values_[i];
    const auto reg = [&](std::uint32_t operand) {
      return operand == kNone ? std::uint8_t{0} : registers.reg[operand];
    };
    Instruction in{
        .op = v.op, .a = reg(v.a), .b = reg(v.b), .c = reg(v.c), .format = v.format, .value = v.value};
    for_operands(v, [&](std::uint32_t o) {
      registers.use(o);
    });  // the result may reuse the register of a dying operand
    if (v.op == Opcode::load || writes(v.op)) {
      if (v.index >= (v.op == Opcode::load ? max_inputs_ : kMaxOutputs)) return std::nullopt;
      in.index = static_cast<std::uint8_t>(v.index);
      std::uint8_t& count = v.op == Opcode::load ? e.inputs : e.outputs;
      count = std::max(count, static_cast<std::uint8_t>(v.index + 1));
    }
    if (v.op != Opcode::store) {
      if (!registers.take(i)) return std::nullopt;
      in.dst = registers.reg[i];
    }
    e.code.push_back(in);
  }
  return e;
}

Expression ExpressionBuilder::build() const {
  std::optional<Expression> e = try_build();
  if (!e) {
    throw ResourceError(
        "expression: it needs more than 16 registers, {} inputs or 4 outputs. Fix: split it into several "
        "programs",
        max_inputs_);
  }
  return *std::move(e);
}

Expression lowered(const Expression& program, Scalar format) {
  Expression out{{}, program.inputs, program.outputs};
  for (const Instruction& in : program.code) {
    out.code.push_back(in);
    if (rounds(in.op))
      out.code.push_back({.op = Opcode::round, .dst = in.dst, .a = in.dst, .format = format});
  }
  return out;
}

Expression unrounded(const Expression& program) {
  Expression out{{}, program.inputs, program.outputs};
  for (Instruction in : program.code) {
    if (in.op == Opcode::round && in.dst == in.a) continue;
    if (in.op == Opcode::round) in.op = Opcode::max, in.b = in.a;  // the value itself
    out.code.push_back(in);
  }
  return out;
}

bool rounds_inside(const Expression& program) {
  return std::ranges::find(program.code, Opcode::round, &Instruction::op) != program.code.end();
}

Scalar least_rounding(const Expression& program) {
  Scalar least = Scalar::f64;
  for (const Instruction& in : program.code) {
    if (in.op == Opcode::round && traits(in.format).mantissa_bits < traits(least).mantissa_bits)
      least = in.format;
  }
  return least;
}

std::optional<Expression> fuse(const Expression& producer, const std::vector<Wire>& wires,
                               const Expression& consumer, const std::vector<bool>& kept, Scalar arithmetic) {
  assert(wires.size() == consumer.inputs && kept.size() == producer.outputs);
  ExpressionBuilder b;
  std::vector<Reg> inputs;
  for (std::size_t i = 0; i < producer.inputs; ++i) inputs.push_back(b.load(i));
  const std::vector<Reg> made = b.append(producer, inputs);
  std::size_t input_count = producer.inputs, output_count = 0;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (kept[i]) b.store(made[i], output_count++);
  }
  std::vector<Reg> consumed;
  for (const Wire& w : wires) {
    if (w.from == Wire::From::own) {
      consumed.push_back(b.load(input_count++));
    } else if (w.from == Wire::From::input) {
      consumed.push_back(inputs[w.index]);
    } else {
      consumed.push_back(w.format == arithmetic ? made[w.index] : b.round(made[w.index], w.format));
    }
  }
  for (const Reg result : b.append(consumer, consumed)) b.store(result, output_count++);
  if (input_count > kMaxInputs || output_count > kMaxOutputs) return std::nullopt;
  std::optional<Expression> fused = b.try_build();
  if (fused) {
    // Inputs that are now unused keep their indices.
    fused->inputs = static_cast<std::uint8_t>(input_count);
    fused->outputs = static_cast<std::uint8_t>(output_count);
  }
  return fused;
}

}  // namespace mantissa::kernels
