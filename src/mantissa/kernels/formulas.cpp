#include "mantissa/kernels/formulas.h"

#include "mantissa/kernels/expression.h"

namespace mantissa::kernels {
namespace {

#include "mantissa/kernels/formulas.inc"

template <class Formula>
Expression program_of() {
  ExpressionBuilder b(kMaxSweepInputs);
  Formula::write(b);
  return b.build();
}

}  // namespace

const Expression& adamw_program(bool compensated) {
  static const Expression kPlain = program_of<AdamWFormula<false>>();
  static const Expression kCompensated = program_of<AdamWFormula<true>>();
  return compensated ? kCompensated : kPlain;
}

bool runs_compiled(const Expression& program) {
  return program == adamw_program(false) || program == adamw_program(true);
}

}  // namespace mantissa::kernels
