// Owned memory, aligned for SIMD and allocated in pages, and typed views of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/core/numeric/format.h"

namespace mantissa {

inline constexpr std::size_t kAlignment = 64;

/// Rounds `bytes` up to the alignment of every planned buffer.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// A block of zeroed memory. Throws ResourceError, with the size, if the operating system cannot provide it.
class Storage {
 public:
  Storage() = default;
  explicit Storage(std::size_t bytes);
  ~Storage();
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&& other) noexcept;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A read-only matrix view: element (i, j) is at data[i * ld + j], in elements of `type`.
struct ConstMatrix {
  const void* data = nullptr;
  Scalar type = Scalar::f32;
  std::int64_t ld = 0;
};

/// A writable matrix view. Stores round to nearest in `type`.
struct Matrix {
  void* data = nullptr;
  Scalar type = Scalar::f32;
  std::int64_t ld = 0;
  operator ConstMatrix() const { return {data, type, ld}; }  // NOLINT(google-explicit-constructor)
};

}  // namespace mantissa
