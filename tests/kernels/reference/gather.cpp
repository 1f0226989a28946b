#include "kernels/reference/gather.h"

#include <algorithm>

namespace mantissa::kernels::reference {

void gather(std::int64_t count, std::int64_t width, const double* table, const std::int32_t* ids, double* y) {
  for (std::int64_t i = 0; i < count; ++i) std::copy_n(table + ids[i] * width, width, y + i * width);
}

void gather_backward(std::int64_t tokens, std::int64_t entries, std::int64_t width, const std::int32_t* ids,
                     const double* dy, double* dtable, std::int64_t padding_id) {
  std::fill_n(dtable, entries * width, 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t c = 0; c < width && ids[t] != padding_id; ++c)
      dtable[ids[t] * width + c] += dy[t * width + c];
  }
}

}  // namespace mantissa::kernels::reference
