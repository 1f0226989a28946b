#include "kernels/reference/token_sum.h"

#include <algorithm>

namespace mantissa::kernels::reference {

void token_sum(std::int64_t tokens, std::int64_t columns, const double* x, double* sum) {
  std::fill_n(sum, columns, 0.0);
  for (std::int64_t t = 0; t < tokens; ++t, x += columns) {
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += x[c];
  }
}

}  // namespace mantissa::kernels::reference
