// Operands and programs that the tests of pointwise kernels and of their expressions share.
#pragma once

#include <vector>

#include "kernels/row_testing.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels::testing {

inline PointwiseInput input(const Tensor& t, Broadcast broadcast = Broadcast::none) {
  return {t.bytes.data(), t.type, broadcast};
}
inline PointwiseOutput output(Tensor& t) {
  return {t.bytes.data(), t.type};
}

inline Expression swiglu() {
  ExpressionBuilder b;
  const ExpressionBuilder::Reg gate = b.load(0);
  b.store(b.mul(b.mul(gate, b.sigmoid(gate)), b.load(1)), 0);
  return b.build();
}

inline std::vector<Tensor> normal_tensors(std::size_t n, Scalar type, std::int64_t rows, std::int64_t width,
                                          unsigned seed = kSeed) {
  std::mt19937 random(seed);
  std::vector<Tensor> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back(Tensor(type, rows, width).fill_normal(random));
  return all;
}

}  // namespace mantissa::kernels::testing
