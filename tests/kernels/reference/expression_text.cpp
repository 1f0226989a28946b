#include "kernels/reference/expression_text.h"

#include <fmt/format.h>

#include <array>
#include <vector>

namespace mantissa::kernels::reference {
namespace {

// Precedence of the outermost operator of a text.
enum Strength { kSum = 1, kProduct = 2, kAtom = 3 };

struct Text {
  std::string text;
  Strength strength = kAtom;
  std::string bound(Strength least) const { return strength < least ? fmt::format("({})", text) : text; }
};

std::string function_name(const Instruction& in) {
  switch (in.op) {
    case Opcode::exp:
      return "exp";
    case Opcode::log:
      return "log";
    case Opcode::tanh:
      return "tanh";
    case Opcode::normal_cdf:
      return "normal_cdf";
    case Opcode::sigmoid:
      return "sigmoid";
    case Opcode::rsqrt:
      return "rsqrt";
    case Opcode::relu:
      return "relu";
    case Opcode::sqrt:
      return "sqrt";
    case Opcode::abs:
      return "abs";
    case Opcode::sign:
      return "sign";
    case Opcode::round:
      return fmt::format("round<{}>", name(in.format));
    default:
      return "?";
  }
}

/// Sums and products associate to the left, so a right operand of equal precedence gets parentheses.
Text apply(const Instruction& in, const Text& a, const Text& b, const Text& c) {
  switch (in.op) {
    case Opcode::load:
      return {fmt::format("in{}", in.index)};
    case Opcode::constant:
      return {fmt::format("{}", in.value)};
    case Opcode::add:
      return {fmt::format("{} + {}", a.bound(kSum), b.bound(kProduct)), kSum};
    case Opcode::sub:
      return {fmt::format("{} - {}", a.bound(kSum), b.bound(kProduct)), kSum};
    case Opcode::mul:
      return {fmt::format("{} * {}", a.bound(kProduct), b.bound(kAtom)), kProduct};
    case Opcode::div:
      return {fmt::format("{} / {}", a.bound(kProduct), b.bound(kAtom)), kProduct};
    case Opcode::fma:
      return {fmt::format("fma({}, {}, {})", a.text, b.text, c.text)};
    case Opcode::neg:
      return {fmt::format("-{}", a.bound(kAtom)), kProduct};
    case Opcode::max:
      return {fmt::format("max({}, {})", a.text, b.text)};
    case Opcode::min:
      return {fmt::format("min({}, {})", a.text, b.text)};
    case Opcode::lost:
      return {fmt::format("{} - ({} - {})", c.bound(kSum), a.bound(kSum), b.bound(kProduct)), kSum};
    default:
      return {fmt::format("{}({})", function_name(in), a.text)};
  }
}

int operand_count(Opcode op) {
  switch (op) {
    case Opcode::load:
    case Opcode::constant:
      return 0;
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul:
    case Opcode::div:
    case Opcode::max:
    case Opcode::min:
    case Opcode::move:
      return 2;
    case Opcode::fma:
    case Opcode::lost:
      return 3;
    default:
      return 1;
  }
}

/// Counts how often the result of each instruction is read.
std::vector<int> count_uses(const std::vector<Instruction>& code) {
  std::vector<int> uses(code.size(), 0);
  std::array<std::size_t, 256> writer{};
  for (std::size_t i = 0; i < code.size(); ++i) {
    const std::uint8_t operands[] = {code[i].a, code[i].b, code[i].c};
    for (int k = 0; k < operand_count(code[i].op); ++k) ++uses[writer[operands[k]]];
    if (code[i].op != Opcode::store) writer[code[i].dst] = i;
  }
  return uses;
}

}  // namespace

std::string text_of(const Expression& expression) {
  const std::vector<Instruction>& code = expression.code;
  const std::vector<int> uses = count_uses(code);
  std::array<Text, 256> registers;
  std::string text;
  int named = 0;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    if (in.op == Opcode::store) {
      text += fmt::format("{}out{} = {}", text.empty() ? "" : "; ", in.index, registers[in.a].text);
      continue;
    }
    if (in.op == Opcode::move) {
      text += fmt::format("{}out{} = {} + {}", text.empty() ? "" : "; ", in.index,
                          registers[in.a].bound(kSum), registers[in.b].bound(kProduct));
      registers[in.dst] = {fmt::format("out{}", in.index)};
      continue;
    }
    Text value = apply(in, registers[in.a], registers[in.b], registers[in.c]);
    if (uses[i] > 1 && operand_count(in.op) > 0) {
      // Values that are read more than once get a name, which keeps the text as short as the program.
      const std::string called = fmt::format("t{}", named++);
      text += fmt::format("{}{} = {}", text.empty() ? "" : "; ", called, value.text);
      value = {called};
    }
    registers[in.dst] = std::move(value);
  }
  return text;
}

}  // namespace mantissa::kernels::reference
