// The scratch memory of the recurrence: one share for each thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/recurrence.h"

namespace mantissa::kernels {

/// Values of a row of a state in scratch memory: whole vectors on every instruction set.
constexpr std::size_t padded_values(std::int64_t value_dim) {
  constexpr std::size_t kLanes = 16;
  return (static_cast<std::size_t>(value_dim) + kLanes - 1) / kLanes * kLanes;
}

/// Rows that a thread holds of one token: r, w, k, alpha, beta [key_dim], v and s [padded values].
struct TokenScratch {
  std::size_t keys = 0, values = 0;
  static constexpr std::size_t kKeyRows = 5, kValueRows = 3;

  explicit TokenScratch(const RecurrenceShape& s)
      : keys(padded_values(s.key_dim)), values(padded_values(s.value_dim)) {}
  std::size_t elements() const { return kKeyRows * keys + kValueRows * values; }
  /// Elements of one state.
  std::size_t state(const RecurrenceShape& s) const { return static_cast<std::size_t>(s.key_dim) * values; }
};

/// Hands out parts of a thread's memory in order.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::span<std::byte> memory) : next_(reinterpret_cast<T*>(memory.data())) {}
  T* take(std::size_t elements) {
    T* const part = next_;
    next_ += elements;
    return part;
  }

 private:
  T* next_;
};

}  // namespace mantissa::kernels
