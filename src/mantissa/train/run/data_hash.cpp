#include "mantissa/train/run/data_hash.h"

#include <algorithm>
#include <span>

#include "mantissa/files/io/hash.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/data/generated.h"

namespace mantissa::run {

std::string hash_of_rows(const config::RunConfig& config, const text::Dataset& data) {
  constexpr std::int64_t kMostIds = 1 << 24, kSample = 1024, kAtOnce = 64;
  const std::int64_t rows = data.training_rows();
  const bool generated = data::has_generated(config.data.source) ||
                         std::ranges::any_of(config.run.stages, [](const auto& stage) {
                           return data::has_generated(stage.source);
                         });
  if (rows == 0 || generated) return "";
  io::Hash64 hash;
  const auto add = [&]<class T>(const std::vector<T>& values) {
    hash.update(std::as_bytes(std::span(values)));
  };
  const auto add_rows = [&](std::int64_t first, std::int64_t count) {
    const text::StepData step = data.training(first, count);
    add(step.ids);
    add(step.begins);
    add(step.targets);
    add(step.weights);
  };
  add(std::vector{rows});
  if (data.ids_in_rows() <= kMostIds) {
    for (std::int64_t first = 0; first < rows; first += kAtOnce)
      add_rows(first, std::min(kAtOnce, rows - first));
  } else {
    const std::int64_t sample = std::min(kSample, rows);
    for (std::int64_t i = 1; i <= sample; ++i) {
      const double place = static_cast<double>(i) / static_cast<double>(sample);
      add_rows(std::clamp<std::int64_t>(static_cast<std::int64_t>(place * static_cast<double>(rows)) - 1, 0,
                                        rows - 1),
               1);
    }
  }
  return io::hex(hash.digest());
}

RowHashes::RowHashes(const config::RunConfig& config, const text::Dataset* data, std::int64_t step)
    : data_(data) {
  if (data == nullptr) return;
  const auto add = [&](const text::Dataset& rows) {
    if (!of_.contains(&rows)) of_[&rows] = hash_of_rows(config, rows);
  };
  add(data->at_step(step));
  for (std::size_t stage = 0; stage < config::stage_count(config); ++stage) {
    const std::int64_t first = config::first_step(config, stage) + 1;
    if (first > step) add(data->at_step(first));
  }
}

std::string RowHashes::at_step(std::int64_t step) const {
  return data_ == nullptr ? "" : of_.at(&data_->at_step(step));
}

}  // namespace mantissa::run
