#include "kernels/reference/row_norms.h"

#include <cmath>

namespace mantissa::kernels::reference {

void row_norms(std::int64_t out, std::int64_t in, std::int64_t rank, double scale, bool transposed,
               const double* weight, const double* a, const double* b, double* norms) {
  for (std::int64_t o = 0; o < out; ++o) {
    double squares = 0;
    for (std::int64_t i = 0; i < in; ++i) {
      double change = 0;
      for (std::int64_t k = 0; k < rank; ++k) change += b[o * rank + k] * a[k * in + i];
      const double w = (transposed ? weight[i * out + o] : weight[o * in + i]) + scale * change;
      squares += w * w;
    }
    norms[o] = std::sqrt(squares);
  }
}

}  // namespace mantissa::kernels::reference
