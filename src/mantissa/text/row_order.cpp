#include "mantissa/text/row_order.h"

#include <cassert>
#include <utility>

namespace mantissa::text {

RowOrder::RowOrder(std::int64_t rows, bool shuffle, std::uint64_t seed)
    : rows_(rows),
      shuffle_(shuffle),
      seed_(seed),
      permutation_(static_cast<std::uint64_t>(rows), seed, static_cast<std::uint64_t>(epoch_)) {}

std::int64_t RowOrder::at(std::int64_t epoch, std::int64_t place) {
  if (!shuffle_) return place;
  if (epoch != epoch_) {
    epoch_ = epoch;
    permutation_ = Permutation(static_cast<std::uint64_t>(rows_), seed_, static_cast<std::uint64_t>(epoch));
  }
  return static_cast<std::int64_t>(permutation_(static_cast<std::uint64_t>(place)));
}

Packs::Packs(std::vector<std::int32_t> lengths, std::int64_t capacity, RowOrder order)
    : lengths_(std::move(lengths)), capacity_(capacity), order_(order) {}

std::int64_t Packs::first_row(std::int64_t pack) {
  const std::scoped_lock lock(mutex_);
  while (static_cast<std::int64_t>(first_.size()) <= pack) {
    std::int64_t row = first_.back(), room = capacity_;
    for (;; ++row) {
      const std::int64_t length = lengths_[static_cast<std::size_t>(order_(row))];
      assert(length <= capacity_);
      if (length > room) break;
      room -= length;
    }
    first_.push_back(row);
  }
  return first_[static_cast<std::size_t>(pack)];
}

}  // namespace mantissa::text
