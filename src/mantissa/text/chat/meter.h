// The limits of one rendering, so that no template can hang the program or exhaust memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mantissa::chat {

struct Limits {
  std::uint64_t steps = 10'000'000;  // evaluated nodes, visited elements, and 64-byte blocks of scanned text
  std::uint64_t bytes = 512ull << 20;  // all memory that the rendering ever asks for, freed or not
  std::uint32_t depth = 1000;          // nested evaluations
};

/// Counts the work of a rendering. Each function throws a Fault if a limit is exceeded.
class Meter {
 public:
  explicit Meter(const Limits& limits = {}) : limits_(limits) {}

  void step(std::uint64_t count = 1) {
    if (count > limits_.steps - steps_) too_many_steps();
    steps_ += count;
  }
  /// Charges memory, before it is allocated.
  void allocate(std::uint64_t bytes) {
    if (bytes > limits_.bytes - bytes_) too_much_memory();
    bytes_ += bytes;
  }
  /// Charges the time of reading text.
  void scan(std::size_t bytes) { step(1 + bytes / 64); }

  /// Counts one nested evaluation for its lifetime.
  class Nested {
   public:
    explicit Nested(Meter& meter) : meter_(meter) {
      if (meter.depth_ >= meter.limits_.depth) meter.too_deep();
      ++meter.depth_;
    }
    ~Nested() { --meter_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Meter& meter_;
  };

 private:
  [[noreturn]] void too_many_steps() const;
  [[noreturn]] void too_much_memory() const;
  [[noreturn]] void too_deep() const;

  Limits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t depth_ = 0;
};

}  // namespace mantissa::chat
