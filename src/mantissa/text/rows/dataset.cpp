#include "mantissa/text/rows/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"

namespace mantissa::text {
namespace {

// Number of held-out sequences: `share` of them rounded down, at least one unless `share` is 0.
void check_weight(const StepData& data, const std::string& name, const std::string& what) {
  if (!data.weighted() || data.total_weight() > 0) return;
  throw ConfigError("{}: no token of {} has a label and a weight above 0; there is nothing to predict", name,
                    what);
}

}  // namespace

std::int64_t held_out_rows(std::int64_t rows, double share) {
  if (share == 0) return 0;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::floor(share * static_cast<double>(rows))));
}

Dataset::Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name)
    : Dataset(std::vector<WeightedRows>{{sequences(Corpus(std::move(ids)), options.sequence_length)}},
              options, std::move(name)) {}

Dataset::Dataset(std::vector<Row> rows, const Options& options, std::string name)
    : Dataset(std::vector<WeightedRows>{{listed(std::move(rows))}}, options, std::move(name)) {}

Dataset::Dataset(std::vector<WeightedRows> parts, const Options& options, std::string name)
    : options_(options), name_(std::move(name)) {
  check_options();
  for (WeightedRows& part : parts) {
    sources_.push_back({std::move(part.rows), part.name.empty() ? name_ : std::move(part.name)});
    weights_.push_back(part.weight);
  }
  split();
  arrange();
}

Dataset::Dataset(RowSource source, std::int64_t vocabulary, const Options& options, std::string name)
    : source_(std::move(source)), vocabulary_(vocabulary), options_(options), name_(std::move(name)) {
  check_options();
}

void Dataset::check_options() const {
  if (options_.sequence_length < 1) {
    throw ConfigError("data.sequence_length is {}; it must be at least 1", options_.sequence_length);
  }
  if (!(options_.validation >= 0 && options_.validation < 1)) {
    throw ConfigError(
        "data.validation is {}; as a share it must be at least 0 and below 1 (0 holds nothing out)",
        options_.validation);
  }
}

void Dataset::split() {
  std::int64_t origin = 0;
  for (Source& source : sources_) {
    const std::int64_t rows = source.rows->rows();
    source.origin = origin;
    source.held_out = held_out_rows(rows, options_.validation);
    source.usable = rows - source.held_out;
    if (source.usable < 1) {
      const bool validation = source.held_out > 0;
      throw ConfigError(
          "{}: {}", source.name,
          source.rows->shortage(validation ? 2 : 1, validation ? "training with validation" : "training"));
    }
    origin += rows;
    held_out_ += source.held_out;
  }
}

void Dataset::arrange() {
  std::vector<std::int64_t> rows;
  for (Source& source : sources_) rows.push_back(source.train = source.usable);
  train_ = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  if (options_.rwkv_walk) {
    const RwkvWalk over = walk();
    train_ = sources_.front().train = over.prime();
    order_ = RowOrder(over);
  } else {
    order_ = RowOrder(std::move(rows), weights_, options_.shuffle, options_.seed);
  }
  if (!options_.packs) return;
  std::vector<std::shared_ptr<const RowStore>> stores;
  for (const Source& source : sources_) stores.push_back(source.rows);
  const auto length = [order = order_, stores = std::move(stores)](std::int64_t row) {
    const RowPlace place = order.at(row, 1, 0);
    return stores[place.source]->length(place.row);
  };
  packs_ = std::make_shared<Packs>(length, options_.sequence_length);
}

void Dataset::hold_out(std::shared_ptr<const RowStore> rows) {
  for (Source& source : sources_) {
    source.usable += source.held_out;
    source.held_out = 0;
  }
  held_out_ = rows->rows();
  held_out_rows_ = std::move(rows);
  if (!sources_.empty()) arrange();
}

void Dataset::train_below(std::int64_t end) {
  Source& source = sources_.front();
  const std::int64_t usable = std::min(source.usable, end / options_.sequence_length);
  if (usable == source.usable) return;
  if (usable < 1) {
    throw ConfigError(
        "{}: only {} tokens remain before the held-out part, fewer than one sequence of {}. Fix: more "
        "data, or files as data.validation",
        name_, end, options_.sequence_length);
  }
  source.usable = usable;
  arrange();
}

std::int64_t Dataset::training_end() const {
  std::int64_t usable = 0;
  for (const Source& source : sources_) usable += source.usable;
  return usable * options_.sequence_length;
}

RwkvWalk Dataset::walk() const {
  if (sources_.size() != 1)
    throw ConfigError("{}: expected one source for data.order = \"rwkv\", got {}. Fix: remove data.weights",
                      name_, sources_.size());
  const std::int64_t rows = sources_.front().usable;
  const std::int64_t prime = options_.magic_prime > 0 ? options_.magic_prime : magic_prime_below(rows);
  const std::string fault = magic_prime_fault(prime, rows);
  if (fault.empty()) return RwkvWalk(prime);
  if (options_.magic_prime > 0)
    throw ConfigError(
        "data.magic_prime = {}: expected a prime of the form 3n + 2, above 0.9 of the rows and at most their "
        "number, but {}. Fix: remove the key, which then has the value for this data.sequence_length, {}",
        prime, fault, magic_prime_below(rows));
  throw ConfigError(
      "{}: expected data for data.order = \"rwkv\" with a prime of the form 3n + 2 below their rows and above "
      "0.9 of them, got {}. Fix: give more data or a smaller data.sequence_length, or remove data.order",
      name_, counted(rows, "row"));
}

const Dataset& Dataset::at_step(std::int64_t step) const {
  const Dataset* found = this;
  for (const Dataset& stage : later_) {
    if (stage.options_.first_step < step) found = &stage;
  }
  return *found;
}

std::int64_t Dataset::training_rows() const {
  return train_;
}
std::int64_t Dataset::validation_rows() const {
  return held_out_;
}
std::size_t Dataset::bytes() const {
  std::size_t sum = held_out_rows_ ? held_out_rows_->bytes() : 0;
  for (const Source& source : sources_) sum += source.rows->bytes();
  return sum;
}
std::vector<std::int64_t> Dataset::document_lengths() const {
  std::vector<std::int64_t> all;
  for (const Source& source : sources_) {
    const std::vector<std::int64_t> lengths = source.rows->document_lengths();
    all.insert(all.end(), lengths.begin(), lengths.end());
  }
  return all;
}
std::int64_t Dataset::ids_in_rows() const {
  std::int64_t sum = 0;
  for (const Source& source : sources_) sum += source.rows->ids_in_rows();
  return sum;
}
const std::string& Dataset::name() const {
  return name_;
}

std::vector<Dataset::SourceCounts> Dataset::source_counts() const {
  const double weights = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  std::vector<SourceCounts> all;
  for (std::size_t s = 0; s < sources_.size(); ++s) {
    const Source& source = sources_[s];
    all.push_back({source.name, weights_[s] / weights, source.train, source.held_out, source.rows->tokens()});
  }
  return all;
}
std::int64_t Dataset::rows_of_steps(std::int64_t steps, std::int64_t global_batch_size) const {
  const std::int64_t items = steps * global_batch_size;
  return packs_ != nullptr ? packs_->first_row(items) : items;
}

void Dataset::append(const RowPlace& place, StepData& data) const {
  const Source& source = sources_[place.source];
  source.rows->append(place.row, source.origin + place.row, data);
}

StepData Dataset::from_source(std::int64_t step, std::int64_t global_batch_size) const {
  const std::vector<Row> rows = source_(step);
  if (static_cast<std::int64_t>(rows.size()) != global_batch_size) {
    throw ConfigError("{}: gave {} for step {}, but batch.global_batch_size is {}", name_,
                      counted(rows.size(), "row"), step, global_batch_size);
  }
  StepData data = empty_step(global_batch_size, options_.sequence_length);
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
    throw ConfigError("step {} and global_batch_size {} are out of range; both must be at least 1", step,
                      global_batch_size);
  }
  if (const Dataset& stage = at_step(step); &stage != this) return stage.step(step, global_batch_size);
  step += options_.earlier_steps - options_.first_step;
  if (source_) return from_source(step, global_batch_size);
  if (packs_ != nullptr) return from_packs(step, global_batch_size);
  if (options_.carries) return from_streams(step, global_batch_size);
  StepData data = empty_step(global_batch_size, options_.sequence_length);
  data.sequence = static_cast<std::uint64_t>(options_.first_sequence) +
                  static_cast<std::uint64_t>(step - 1) * static_cast<std::uint64_t>(global_batch_size);
  // Rows are counted over all epochs, so an epoch may begin within a batch.
  for (std::int64_t i = 0; i < global_batch_size; ++i)
    append(order_.at(step - 1, global_batch_size, first_row_ + i), data);
  // Each document of a pack has random numbers of its own. A pack has at most (T + 1) / 2.
  if (!data.packs.empty()) data.sequence *= static_cast<std::uint64_t>(options_.sequence_length / 2 + 1);
  check_weight(data, name_, fmt::format("step {}", options_.first_step - options_.earlier_steps + step));
  return data;
}

StepData Dataset::from_packs(std::int64_t step, std::int64_t global_batch_size) const {
  const std::int64_t pack = (step - 1) * global_batch_size, first = packs_->first_row(pack);
  const std::int64_t rows = packs_->first_row(pack + global_batch_size) - first;
  StepData data = empty_step(rows, options_.sequence_length);
  data.sequence = static_cast<std::uint64_t>(first);
  for (std::int64_t i = 0; i < rows; ++i) append(order_.at(first + i, 1, 0), data);
  for (std::int64_t p = 0; p <= global_batch_size; ++p)
    data.packs.push_back(packs_->first_row(pack + p) - first);
  check_weight(data, name_, fmt::format("step {}", step));
  return data;
}

StepData Dataset::from_streams(std::int64_t step, std::int64_t global_batch_size) const {
  const std::int64_t length = train_ / global_batch_size;  // of a stream, in rows
  if (length < 1) {
    throw ConfigError(
        "{}: expected at least batch.global_batch_size = {} rows for data.carry_state, one for each row of a "
        "batch, got {}. Fix: give more data, or a smaller data.sequence_length or batch.global_batch_size",
        name_, global_batch_size, train_);
  }
  StepData data = empty_step(global_batch_size, options_.sequence_length);
  data.sequence = static_cast<std::uint64_t>(step - 1) * static_cast<std::uint64_t>(global_batch_size);
  data.carries = true;
  data.position = (step - 1) % length * options_.sequence_length;
  for (std::int64_t i = 0; i < global_batch_size; ++i) append({0, i * length + (step - 1) % length}, data);
  return data;
}

StepData Dataset::training(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || count > train_ || first > train_ - count)
    throw ConfigError("{}: rows {} to {} are out of range; {} rows are for training", name_, first,
                      first + count, train_);
  return rows_of(first, count, &Source::train, [](const Source&) { return std::int64_t{0}; });
}

StepData Dataset::validation(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || count > held_out_ || first > held_out_ - count) {
    throw ConfigError("{}: validation rows {} to {} are out of range; {} rows are held out", name_, first,
                      first + count, held_out_);
  }
  StepData data = empty_step(count, options_.sequence_length);
  if (!held_out_rows_) {
    data = rows_of(first, count, &Source::held_out,
                   [](const Source& source) { return source.rows->rows() - source.held_out; });
  } else {
    for (std::int64_t i = first; i < first + count; ++i) held_out_rows_->append(i, i, data);
  }
  if (options_.packs) pack_rows(data);
  if (count > 0) check_weight(data, name_, "the held-out rows");
  return data;
}

StepData Dataset::rows_of(std::int64_t first, std::int64_t count, std::int64_t Source::*rows,
                          std::int64_t (*begin)(const Source&)) const {
  StepData data = empty_step(count, options_.sequence_length);
  for (const Source& source : sources_) {
    const std::int64_t of_source = source.*rows;
    for (std::int64_t i = first; i < std::min(of_source, first + count); ++i) {
      const std::int64_t row = begin(source) + i;
      source.rows->append(row, source.origin + row, data);
    }
    const std::int64_t done = std::clamp<std::int64_t>(of_source - first, 0, count);
    count -= done;
    first = std::max<std::int64_t>(0, first - of_source);
  }
  return data;
}

}  // namespace mantissa::text
