#include "mantissa/text/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/text/permutation.h"

namespace mantissa::text {
namespace {

// Number of held-out sequences: `share` of them rounded down, at least one unless `share` is 0.
std::int64_t held_out_sequences(std::int64_t sequences, double share) {
  if (share == 0) return 0;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(share * static_cast<double>(sequences))));
}

void append_row(const std::vector<std::int32_t>& ids, std::int64_t row, StepData& data) {
  const auto first = ids.begin() + row * data.sequence_length;
  data.ids.insert(data.ids.end(), first, first + data.sequence_length + 1);
  data.origin.push_back(row);
}

StepData empty_step(std::int64_t rows, std::int64_t sequence_length) {
  StepData data{.rows = rows, .sequence_length = sequence_length, .ids = {}, .origin = {}};
  data.ids.reserve(static_cast<std::size_t>(rows * (sequence_length + 1)));
  data.origin.reserve(static_cast<std::size_t>(rows));
  return data;
}

}  // namespace

Dataset::Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name)
    : ids_(std::move(ids)), options_(options), name_(std::move(name)) {
  if (options_.sequence_length < 1) {
    throw ConfigError(
        fmt::format("data.sequence_length is {}; it must be at least 1", options_.sequence_length));
  }
  if (!(options_.validation >= 0 && options_.validation < 1)) {
    throw ConfigError(fmt::format(
        "data.validation is {}; as a share it must be at least 0 and below 1 (0 holds nothing out)",
        options_.validation));
  }
  const std::int64_t sequences = ids_.empty() ? 0 : (tokens() - 1) / options_.sequence_length;
  held_out_ = held_out_sequences(sequences, options_.validation);
  train_ = sequences - held_out_;
  if (train_ >= 1) return;
  const std::int64_t wanted = held_out_ > 0 ? 2 : 1;
  throw ConfigError(fmt::format(
      "{}: {} tokens form {} sequences of data.sequence_length = {}; training{} needs at least {}, that is "
      "{} "
      "tokens. Fix: more data or a shorter sequence_length",
      name_, tokens(), sequences, options_.sequence_length, held_out_ > 0 ? " with validation" : "", wanted,
      static_cast<double>(wanted) * static_cast<double>(options_.sequence_length) + 1));
}

std::int64_t Dataset::training_rows() const {
  return train_;
}
std::int64_t Dataset::validation_rows() const {
  return held_out_;
}
std::size_t Dataset::bytes() const {
  return ids_.capacity() * sizeof(ids_[0]);
}
const std::string& Dataset::name() const {
  return name_;
}
std::int64_t Dataset::tokens() const {
  return static_cast<std::int64_t>(ids_.size());
}

StepData Dataset::step(std::int64_t step, std::int64_t global_batch_size) const {
  if (step < 1 || global_batch_size < 1) {
    throw ConfigError(
        fmt::format("step {} and global_batch_size {} are out of range; both must be at least 1", step,
                    global_batch_size));
  }
  StepData data = empty_step(global_batch_size, options_.sequence_length);
  // Rows are counted over all epochs, so an epoch may begin within a batch. The remainder is computed in two
  // steps because step * global_batch_size can overflow.
  const std::int64_t before = step - 1;
  std::int64_t epoch = before / train_ * global_batch_size;
  const std::int64_t rest = before % train_ * global_batch_size;
  epoch += rest / train_;
  std::int64_t row = rest % train_;
  Permutation order(static_cast<std::uint64_t>(train_), options_.seed, static_cast<std::uint64_t>(epoch));
  for (std::int64_t i = 0; i < global_batch_size; ++i) {
    append_row(ids_,
               options_.shuffle ? static_cast<std::int64_t>(order(static_cast<std::uint64_t>(row))) : row,
               data);
    if (++row == train_) {
      row = 0;
      order =
          Permutation(static_cast<std::uint64_t>(train_), options_.seed, static_cast<std::uint64_t>(++epoch));
    }
  }
  return data;
}

StepData Dataset::validation(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || count > held_out_ || first > held_out_ - count) {
    throw ConfigError(fmt::format("{}: validation rows {} to {} are out of range; {} rows are held out",
                                  name_, first, first + count, held_out_));
  }
  StepData data = empty_step(count, options_.sequence_length);
  for (std::int64_t i = 0; i < count; ++i) append_row(ids_, train_ + first + i, data);
  return data;
}

}  // namespace mantissa::text
