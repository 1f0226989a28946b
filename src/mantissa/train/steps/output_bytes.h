// The outputs of micro-batches as the bytes of messages between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "mantissa/setup/objective/objective.h"

namespace mantissa::train {

void append_outputs(std::vector<std::byte>& all, const objective::Outputs& outputs);
/// Returns the bytes of such outputs for `tokens` tokens.
std::size_t output_bytes(const objective::Outputs& outputs, std::size_t tokens);

/// Reads the outputs of one rank, in the order in which they were appended.
class OutputReader {
 public:
  explicit OutputReader(std::vector<std::byte> bytes);
  bool at_end() const { return at_ == bytes_->size(); }
  objective::Outputs next();

 private:
  std::shared_ptr<const std::vector<std::byte>> bytes_;
  std::size_t at_ = 0;
};

/// A micro-batch, and the lengths of what ranks share of it: its rows, or packs of consecutive ones.
struct WholeRows {
  objective::MicroBatch micro;
  std::vector<std::int64_t> lengths;
};

/// Returns the next outputs of a micro-batch, of which each reader has an early and a late block of each
/// length (runtime::Batch::add_part).
objective::Outputs joined_outputs(std::span<OutputReader> parts, std::span<const std::int64_t> lengths);

}  // namespace mantissa::train
