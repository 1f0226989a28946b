#include "mantissa/text/rows/row_order.h"

#include <cassert>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/rows/permutation.h"

namespace mantissa::text {

RowOrder::RowOrder(std::vector<std::int64_t> rows, std::vector<double> weights, bool shuffle,
                   std::uint64_t seed)
    : rows_(std::move(rows)), shuffle_(shuffle), seed_(seed) {
  if (rows_.size() > 1) mixture_.emplace(std::move(weights), seed);
}

RowPlace RowOrder::place(std::size_t source, std::int64_t epoch, std::int64_t row) const {
  if (walk_) return {source, walk_->row(row)};
  if (!shuffle_) return {source, row};
  // Sources of equal size have different orders.
  const std::uint64_t seed = source == 0 ? seed_ : seed_ ^ hash_name("source") * source;
  const Permutation order(static_cast<std::uint64_t>(rows_[source]), seed, static_cast<std::uint64_t>(epoch));
  return {source, static_cast<std::int64_t>(order(static_cast<std::uint64_t>(row)))};
}

RowPlace RowOrder::at(std::int64_t steps, std::int64_t batch, std::int64_t i) const {
  if (mixture_) {
    constexpr std::int64_t kMost = std::int64_t{1} << 52;  // a whole number of a double
    if (steps > (kMost - i) / batch)
      throw ConfigError("step {} is beyond the order of mixed sources", steps + 1);
    const MixedRow row = mixture_->at(steps * batch + i);
    return place(row.source, row.number / rows_[row.source], row.number % rows_[row.source]);
  }
  const std::int64_t rest = steps % rows_[0] * batch + i;
  return place(0, steps / rows_[0] * batch + rest / rows_[0], rest % rows_[0]);
}

Packs::Packs(std::function<std::int64_t(std::int64_t)> length, std::int64_t capacity)
    : length_(std::move(length)), capacity_(capacity) {}

std::int64_t Packs::first_row(std::int64_t pack) {
  const std::scoped_lock lock(mutex_);
  while (static_cast<std::int64_t>(first_.size()) <= pack) {
    std::int64_t row = first_.back(), room = capacity_;
    for (;; ++row) {
      const std::int64_t length = length_(row);
      assert(length <= capacity_);
      if (length > room) break;
      room -= length;
    }
    first_.push_back(row);
  }
  return first_[static_cast<std::size_t>(pack)];
}

}  // namespace mantissa::text
