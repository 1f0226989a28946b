// Reference for row selection and its gradient, in double.
#pragma once

#include <cstdint>

namespace mantissa::kernels::reference {

/// y[i] = table[ids[i]]. table: [entries, width]; y: [count, width]; dense.
void gather(std::int64_t count, std::int64_t width, const double* table, const std::int32_t* ids, double* y);

/// dtable[ids[t]] += dy[t] over all tokens but those with `padding_id`, from zero.
void gather_backward(std::int64_t tokens, std::int64_t entries, std::int64_t width, const std::int32_t* ids,
                     const double* dy, double* dtable, std::int64_t padding_id = -1);

}  // namespace mantissa::kernels::reference
