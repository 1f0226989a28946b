// Memory for one call of a kernel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "mantissa/core/tensor/storage.h"

namespace mantissa::kernels {

/// Returns `bytes` bytes, all 0xff, which is NaN in every format. They are reused by the next call of the
/// thread: new pages take longer than most products of the tests.
inline std::byte* filled_workspace(std::size_t bytes) {
  thread_local Storage kept;
  if (kept.size() < bytes || kept.size() == 0) kept = Storage(std::max<std::size_t>(bytes, 1));
  std::memset(kept.data(), 0xff, bytes);
  return kept.data();
}

}  // namespace mantissa::kernels
