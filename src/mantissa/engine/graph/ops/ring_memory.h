// The memory of an op whose ranks exchange blocks: pieces of its workspace, and the transfers that use them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

/// Transfers whose memory must stay until they are complete.
class Transfers {
 public:
  Transfers() = default;
  ~Transfers() {
    for (std::future<void>& f : all_) {
      if (f.valid()) f.wait();
    }
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Starts the transfer of a place by start(), after the one that used its memory before.
  template <class Start>
  void start(std::size_t place, const Start& start) {
    await(place);
    if (all_.size() <= place) all_.resize(place + 1);
    all_[place] = start();
  }
  void await(std::size_t place) {
    if (place < all_.size() && all_[place].valid()) all_[place].get();
  }
  void complete() {
    for (std::size_t place = 0; place < all_.size(); ++place) await(place);
  }

 private:
  std::vector<std::future<void>> all_;
};

/// Consecutive pieces of the workspace, after that of the kernels.
class RingMemory {
 public:
  RingMemory(const Call& c, std::size_t kernels)
      : memory_(c.ctx.workspace, c.ctx.workspace_bytes), used_(aligned(kernels)) {}

  std::span<std::byte> take(std::size_t bytes) {
    if (aligned(bytes) > memory_.size() - std::min(used_, memory_.size()))
      throw InternalError("an op over ranks: a workspace of {} bytes is too small", memory_.size());
    const std::span<std::byte> piece = memory_.subspan(used_, bytes);
    used_ += aligned(bytes);
    return piece;
  }
  Matrix matrix(std::int64_t rows, std::int64_t width, Scalar type) {
    return {take(static_cast<std::size_t>(rows * width) * bytes_of(type)).data(), type, width};
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_;
};

/// Returns the rows from `first` on, and the bytes of the first `rows` dense rows.
inline Matrix rows_from(Matrix m, std::int64_t first) {
  m.data = static_cast<std::byte*>(m.data) + static_cast<std::size_t>(first * m.ld) * bytes_of(m.type);
  return m;
}
inline std::span<std::byte> bytes_in(const Matrix& m, std::int64_t rows) {
  return {static_cast<std::byte*>(m.data), static_cast<std::size_t>(rows * m.ld) * bytes_of(m.type)};
}

}  // namespace mantissa::graph
