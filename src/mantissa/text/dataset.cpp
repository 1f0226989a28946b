#include "mantissa/text/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "mantissa/base/counted.h"
#include "mantissa/base/error.h"

namespace mantissa::text {
namespace {

// Number of held-out sequences: `share` of them rounded down, at least one unless `share` is 0.
std::int64_t held_out_sequences(std::int64_t sequences, double share) {
  if (share == 0) return 0;
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::floor(share * static_cast<double>(sequences))));
}

void check_weight(const StepData& data, const std::string& name, const std::string& what) {
  if (!data.weighted() || data.total_weight() > 0) return;
  throw ConfigError(fmt::format(
      "{}: no token of {} has a label and a weight above 0; there is nothing to predict", name, what));
}

}  // namespace

Dataset::Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name)
    : ids_(std::move(ids)), options_(options), name_(std::move(name)) {
  check_options();
  const std::int64_t sequences = ids_.empty() ? 0 : (tokens() - 1) / options_.sequence_length;
  split(sequences);
  if (train_ >= 1) return;
  const std::int64_t wanted = held_out_ > 0 ? 2 : 1;
  throw ConfigError(
      fmt::format("{}: {} form {} of data.sequence_length = {}; training{} needs at least {}, "
                  "that is {} tokens. Fix: more data or a shorter sequence_length",
                  name_, counted(tokens(), "token"), counted(sequences, "sequence"), options_.sequence_length,
                  held_out_ > 0 ? " with validation" : "", wanted,
                  static_cast<double>(wanted) * static_cast<double>(options_.sequence_length) + 1));
}

Dataset::Dataset(std::vector<Row> rows, const Options& options, std::string name)
    : rows_(std::move(rows)), options_(options), name_(std::move(name)) {
  check_options();
  split(static_cast<std::int64_t>(rows_.size()));
  find_packs();
  if (train_ >= 1) return;
  throw ConfigError(fmt::format("{}: {}, and training{} needs at least {}", name_,
                                counted(rows_.size(), "row"), held_out_ > 0 ? " with validation" : "",
                                held_out_ > 0 ? 2 : 1));
}

Dataset::Dataset(RowSource source, std::int64_t vocabulary, const Options& options, std::string name)
    : source_(std::move(source)), vocabulary_(vocabulary), options_(options), name_(std::move(name)) {
  check_options();
}

void Dataset::check_options() const {
  if (options_.sequence_length < 1) {
    throw ConfigError(
        fmt::format("data.sequence_length is {}; it must be at least 1", options_.sequence_length));
  }
  if (!(options_.validation >= 0 && options_.validation < 1)) {
    throw ConfigError(fmt::format(
        "data.validation is {}; as a share it must be at least 0 and below 1 (0 holds nothing out)",
        options_.validation));
  }
}

void Dataset::split(std::int64_t sequences) {
  held_out_ = held_out_sequences(sequences, options_.validation);
  train_ = sequences - held_out_;
}

void Dataset::find_packs() {
  if (!options_.packs || train_ < 1) return;
  std::vector<std::int32_t> lengths;
  for (std::int64_t r = 0; r < train_; ++r)
    lengths.push_back(static_cast<std::int32_t>(rows_[static_cast<std::size_t>(r)].ids.size()) - 1);
  packs_ = std::make_shared<Packs>(std::move(lengths), options_.sequence_length,
                                   RowOrder(train_, options_.shuffle, options_.seed));
}

void Dataset::hold_out(std::vector<Row> rows) {
  train_ += held_out_;
  held_out_ = static_cast<std::int64_t>(rows.size());
  held_out_rows_ = std::move(rows);
  find_packs();
}

std::int64_t Dataset::training_rows() const {
  return train_;
}
std::int64_t Dataset::validation_rows() const {
  return held_out_;
}
std::size_t Dataset::bytes() const {
  const auto of = [](const auto& v) { return v.capacity() * sizeof(v[0]); };
  std::size_t sum = of(ids_);
  for (const std::vector<Row>* rows : {&rows_, &held_out_rows_}) {
    sum += of(*rows);
    for (const Row& row : *rows) sum += of(row.ids) + of(row.labels) + of(row.weights);
  }
  return sum;
}
const std::string& Dataset::name() const {
  return name_;
}
std::int64_t Dataset::tokens() const {
  return static_cast<std::int64_t>(ids_.size());
}

StepData Dataset::empty(std::int64_t rows) const {
  StepData data = empty_step(rows, options_.sequence_length);
  if (rows_.empty() && !source_)
    data.ids.reserve(static_cast<std::size_t>(rows * (options_.sequence_length + 1)));
  return data;
}

void Dataset::append(std::int64_t row, StepData& data) const {
  if (!rows_.empty()) return append_row(rows_[static_cast<std::size_t>(row)], row, data);
  const auto first = ids_.begin() + row * data.sequence_length;
  data.ids.insert(data.ids.end(), first, first + data.sequence_length + 1);
  data.origin.push_back(row);
}

StepData Dataset::from_source(std::int64_t step, std::int64_t global_batch_size) const {
  const std::vector<Row> rows = source_(step);
  if (static_cast<std::int64_t>(rows.size()) != global_batch_size) {
    throw ConfigError(fmt::format("{}: gave {} for step {}, but batch.global_batch_size is {}", name_,
                                  counted(rows.size(), "row"), step, global_batch_size));
  }
  StepData data = empty(global_batch_size);
  data.sequence = static_cast<std::uint64_t>((step - 1) * global_batch_size);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    check_row(rows[r], options_.sequence_length, vocabulary_,
              fmt::format("{}, step {}, row {}", name_, step, r));
    append_row(rows[r], (step - 1) * global_batch_size + static_cast<std::int64_t>(r), data);
  }
  check_weight(data, name_, fmt::format("step {}", step));
  return data;
}

StepData Dataset::step(std::int64_t step, std::int64_t global_batch_size) const {
  if (step < 1 || global_batch_size < 1) {
    throw ConfigError(
        fmt::format("step {} and global_batch_size {} are out of range; both must be at least 1", step,
                    global_batch_size));
  }
  if (source_) return from_source(step, global_batch_size);
  if (packs_ != nullptr) return from_packs(step, global_batch_size);
  StepData data = empty(global_batch_size);
  // Rows are counted over all epochs, so an epoch may begin within a batch. The remainder is computed in two
  // steps because step * global_batch_size can overflow.
  const std::int64_t before = step - 1;
  std::int64_t epoch = before / train_ * global_batch_size;
  const std::int64_t rest = before % train_ * global_batch_size;
  epoch += rest / train_;
  std::int64_t row = rest % train_;
  data.sequence = static_cast<std::uint64_t>(before) * static_cast<std::uint64_t>(global_batch_size);
  RowOrder order(train_, options_.shuffle, options_.seed);
  for (std::int64_t i = 0; i < global_batch_size; ++i) {
    append(order.at(epoch, row), data);
    if (++row < train_) continue;
    row = 0;
    ++epoch;
  }
  check_weight(data, name_, fmt::format("step {}", step));
  return data;
}

StepData Dataset::from_packs(std::int64_t step, std::int64_t global_batch_size) const {
  const std::int64_t pack = (step - 1) * global_batch_size, first = packs_->first_row(pack);
  const std::int64_t rows = packs_->first_row(pack + global_batch_size) - first;
  StepData data = empty(rows);
  data.sequence = static_cast<std::uint64_t>(first);
  RowOrder order(train_, options_.shuffle, options_.seed);
  for (std::int64_t i = 0; i < rows; ++i) append(order(first + i), data);
  for (std::int64_t p = 0; p <= global_batch_size; ++p)
    data.packs.push_back(packs_->first_row(pack + p) - first);
  check_weight(data, name_, fmt::format("step {}", step));
  return data;
}

StepData Dataset::validation(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || count > held_out_ || first > held_out_ - count) {
    throw ConfigError(fmt::format("{}: validation rows {} to {} are out of range; {} rows are held out",
                                  name_, first, first + count, held_out_));
  }
  StepData data = empty(count);
  for (std::int64_t i = first; i < first + count; ++i) {
    if (held_out_rows_.empty()) {
      append(train_ + i, data);
    } else {
      append_row(held_out_rows_[static_cast<std::size_t>(i)], i, data);
    }
  }
  if (options_.packs) pack_rows(data);
  if (count > 0) check_weight(data, name_, "the held-out rows");
  return data;
}

}  // namespace mantissa::text
