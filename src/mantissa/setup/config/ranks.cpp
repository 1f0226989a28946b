#include "mantissa/setup/config/ranks.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "mantissa/core/base/error.h"

namespace mantissa::config {

namespace {

/// Throws if groups of ranks cannot have equal numbers of shards.
void check_shards(const BatchSection& batch, std::int64_t groups, int ranks) {
  if (batch.shards % groups == 0) return;
  std::string fitting;
  for (std::int64_t shards = groups; shards <= batch.global_batch_size; shards += groups) {
    if (batch.global_batch_size / batch.leaf % shards == 0)
      fitting += fmt::format("{}{}", fitting.empty() ? "" : ", ", shards);
  }
  throw ConfigError(
      "batch.shards = {}: {} ranks cannot share them equally. Fix: {}", batch.shards, ranks,
      fitting.empty()
          ? fmt::format("set batch.global_batch_size to a multiple of {}, or start fewer ranks",
                        groups * batch.leaf)
          : fmt::format("set batch.shards = {} (other shards are other bits), or start fewer ranks",
                        fitting));
}

}  // namespace

void check_ranks(const RunConfig& config, int ranks) {
  const std::int64_t parts = config.distributed.sequence_shards;
  if (ranks % parts != 0) {
    throw ConfigError(
        "distributed.sequence_shards = {0}: {1} ranks are not a multiple of it. Fix: start {2} ranks or one "
        "process, or set sequence_shards to a divisor of {1}",
        parts, ranks, (ranks + parts - 1) / parts * parts);
  }
  check_shards(config.batch, ranks / parts, ranks);
}

std::string use_whole_rows(RunConfig& config) {
  const std::int64_t parts = std::exchange(config.distributed.sequence_shards, 1);
  if (parts == 1) return "";
  return fmt::format(
      "distributed.sequence_shards = {}: this command runs whole rows, whose results differ from those of the "
      "run in their last bits",
      parts);
}

std::int64_t tokens_per_rank(const RunConfig& config) {
  const std::int64_t parts = config.distributed.sequence_shards, length = config.data.sequence_length;
  return parts == 1 ? length : 2 * ((length + 2 * parts - 1) / (2 * parts));
}

void check_shared_rows(const RunConfig& config, const Entries& entries) {
  const std::int64_t parts = config.distributed.sequence_shards;
  if (parts == 1) return;
  const auto check_length = [&](std::int64_t length) {
    if (length == 0 || length >= 2 * parts) return;  // 0: rl measures its prompts later
    refuse(*entries.find("distributed", "sequence_shards"),
           fmt::format("expected rows of at least {} tokens, 2 for each rank, got {}. Fix: longer rows, or "
                       "fewer sequence_shards",
                       2 * parts, length));
  };
  check_length(config.data.sequence_length);
  for (const Stage& stage : config.run.stages) check_length(stage.sequence_length);
}

}  // namespace mantissa::config
