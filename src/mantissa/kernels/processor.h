// The processor's support for number formats, which of it the kernels use and why, and how each format is
// computed on this machine.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// An instruction-set extension that computes in a format or converts to it.
struct ProcessorFeature {
  std::string_view name;  // as in compilers and /proc/cpuinfo: "avx512_bf16"
  bool present = false;   // the processor has it and the system saves its registers
  bool used = false;      // the kernels use it with `simd`
  std::string_view why;   // the reason why it is used or not
};

/// Returns the extensions of this processor's family, present or not. `simd` is the set that the kernels use.
std::vector<ProcessorFeature> processor_features(Simd simd);

/// Returns the maker's name, "AMD EPYC 9354", or the family's name if it is unavailable.
std::string processor_name();

/// How the kernels of this build compute products in a format.
enum class How {
  native,     // a unit multiplies values of the format and adds in it, or in f32
  converted,  // stored in the format; a shift or one instruction widens it exactly to f32; products are f32
  simulated,  // the processor does not support it: software rounds values to it
};
std::string_view name(How how);

struct FormatSupport {
  std::string_view format;
  How how = How::simulated;
  std::string_view unit;  // that multiplies such factors in the usual order (kernels/units.h)
  std::string why;
};

/// Returns the support for the format `format` with the set `simd`. Formats outside the table use simulated
/// operands (parts of bf16, scales over blocks).
FormatSupport format_support(std::string_view format, Simd simd);

}  // namespace mantissa::kernels
