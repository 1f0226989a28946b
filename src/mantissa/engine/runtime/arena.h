// Working memory of programs: inputs, constants, caches, gradients, activations and scratch.
#pragma once

#include <cstddef>
#include <span>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/runtime/device.h"

namespace mantissa::runtime {

class Executor;

/// Memory that executors use in turn. The last one that called Executor::hold() holds it. The contents of the
/// others are lost, and reading them through a session throws InternalError.
class Arena {
 public:
  Arena(std::size_t bytes, const Device& device)
      : storage_(device.allocate(bytes)), memory_(storage_.data(), bytes) {}
  /// Uses `part` of another arena, which that arena's executor leaves free between runs (Executor::idle()).
  explicit Arena(std::span<std::byte> part) : memory_(part) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::size_t size() const { return memory_.size(); }
  /// Returns the allocated bytes; 0 for a part of another arena.
  std::size_t bytes() const { return storage_.size(); }

 private:
  friend class Executor;

  Storage storage_;
  std::span<std::byte> memory_;
  const Executor* holder_ = nullptr;
};

}  // namespace mantissa::runtime
