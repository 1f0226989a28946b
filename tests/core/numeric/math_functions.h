// The functions of core/numeric/math-inl.h, for tests that run over all of them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "mantissa/core/numeric/row_math.h"

namespace mantissa::testing {

inline constexpr MathFunction kFunctions[] = {
    MathFunction::exp,   MathFunction::log, MathFunction::tanh, MathFunction::sigmoid,
    MathFunction::rsqrt, MathFunction::sin, MathFunction::cos,  MathFunction::normal_cdf};

inline std::string function_name(const ::testing::TestParamInfo<MathFunction>& info) {
  constexpr const char* kNames[] = {"exp", "log", "tanh", "sigmoid", "rsqrt", "sin", "cos", "normal_cdf"};
  return kNames[static_cast<int>(info.param)];
}

}  // namespace mantissa::testing
