// samples.jsonl: the responses of a run's rollouts, one JSON object per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "mantissa/report/metrics.h"
#include "mantissa/train/rl/task.h"

namespace mantissa::rl {

/// Returns {"step":1,"where":…,"prompt":…,"response":…,"reward":…,…} without a newline.
std::string sample_line(std::int64_t step, const Sampled& sample);

/// Writes the samples of each rollout. Opens the file at the first one: a resumed run then keeps the lines of
/// the steps before it.
class SamplesFile {
 public:
  explicit SamplesFile(std::filesystem::path path) : path_(std::move(path)) {}
  /// `step` is the first optimizer step on the samples, from 1. Throws ResourceError if the disk is full.
  void write(std::int64_t step, std::span<const Sampled> samples);
  /// Returns when all lines are on the disk.
  void sync();

 private:
  std::filesystem::path path_;
  std::optional<report::StepLog> log_;
};

}  // namespace mantissa::rl
