#include "mantissa/kernels/pointwise.h"

#include <algorithm>
#include <bit>

namespace mantissa::kernels {

bool operator==(const Expression& a, const Expression& b) {
  const auto same = [](const Instruction& x, const Instruction& y) {
    return x.op == y.op && x.dst == y.dst && x.a == y.a && x.b == y.b && x.c == y.c && x.index == y.index &&
           x.format == y.format &&
           std::bit_cast<std::uint64_t>(x.value) == std::bit_cast<std::uint64_t>(y.value);
  };
  return a.inputs == b.inputs && a.outputs == b.outputs &&
         std::equal(a.code.begin(), a.code.end(), b.code.begin(), b.code.end(), same);
}

}  // namespace mantissa::kernels
