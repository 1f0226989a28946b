// What this processor has for number formats, what of it the kernels use and why, and so how each format is
// computed here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// An instruction-set extension that computes in, or converts to, a format.
struct ProcessorFeature {
  std::string_view name;  // as compilers and /proc/cpuinfo know it: "avx512_bf16"
  bool present = false;   // the processor has it, and the system saves its registers
  bool used = false;      // with `simd`
  std::string_view why;   // it is used, or not
};

/// The extensions of this processor's family, whether it has them or not. `simd`: what the kernels run with.
std::vector<ProcessorFeature> processor_features(Simd simd);

/// As its maker calls it: "AMD EPYC 9354"; the family's name where it does not say.
std::string processor_name();

/// How the kernels of this build compute products in a format.
enum class How {
  native,     // the processor multiplies and adds in it
  converted,  // stored in it; a shift or one instruction widens it to f32, exactly; products are f32's
  simulated,  // the processor does not know it: own code rounds values to it, products are f32's
};
std::string_view name(How how);

struct FormatSupport {
  std::string_view format;
  How how = How::simulated;
  std::string_view why;
};

/// The format called `format`. What is not in the table is made of simulated operands (parts of bf16, scales
/// over blocks).
FormatSupport format_support(std::string_view format);

}  // namespace mantissa::kernels
