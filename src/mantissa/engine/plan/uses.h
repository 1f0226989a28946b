// The readers and the writer of each buffer, kept up to date while a pass changes steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

class Uses {
 public:
  explicit Uses(const Program& program);

  /// Returns the steps that read `b`, ascending, without duplicates.
  const std::vector<std::size_t>& readers(BufferId b) const { return readers_[at(b)]; }
  /// Returns the last step that writes `b`, or -1.
  std::int64_t writer(BufferId b) const { return writer_[at(b)]; }

  void add_reader(BufferId b, std::size_t step);
  void remove_reader(BufferId b, std::size_t step);
  /// Makes the readers of `from` read `to`.
  void move_readers(BufferId from, BufferId to);
  void set_writer(BufferId b, std::int64_t step) { writer_[at(b)] = step; }

 private:
  static std::size_t at(BufferId b) { return static_cast<std::size_t>(b); }

  std::vector<std::vector<std::size_t>> readers_;
  std::vector<std::int64_t> writer_;
};

}  // namespace mantissa::plan
