#include "mantissa/setup/config/ranks.h"

#include <fmt/format.h>

#include <string>

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
  if (ranks == 1 && parts > 1) {
    throw ConfigError(
        "distributed.sequence_shards = {}: only train shares rows; this command runs them whole. Fix: --set "
        "distributed.sequence_shards=1, which has other bits",
        parts);
  }
  if (ranks % parts != 0) {
    throw ConfigError(
        "distributed.sequence_shards = {0}: {1} ranks are not a multiple of it. Fix: start {2} ranks or one "
        "process, or set sequence_shards to a divisor of {1}",
        parts, ranks, (ranks + parts - 1) / parts * parts);
  }
  check_shards(config.batch, ranks / parts, ranks);
}

std::int64_t tokens_per_rank(const RunConfig& config) {
  const std::int64_t parts = config.distributed.sequence_shards, length = config.data.sequence_length;
  return parts == 1 ? length : 2 * ((length + 2 * parts - 1) / (2 * parts));
}

void check_shared_rows(const RunConfig& config, const Entries& entries) {
  const std::int64_t parts = config.distributed.sequence_shards;
  if (parts == 1) return;
  const auto refuse_for = [&](const std::string& expected, std::string_view fix) {
    refuse(*entries.find("distributed", "sequence_shards"),
           fmt::format("expected {}. Fix: {}", expected, fix));
  };
  if (config.train.objective != "pretrain")
    refuse_for(fmt::format("train.objective = \"pretrain\", whose rows ranks can share, got \"{}\"",
                           config.train.objective),
               "--set distributed.sequence_shards=1");
  if (config.data.packing)
    refuse_for("whole rows, got data.packing, whose documents are short", "remove one of the keys");
  if (config.data.carry_state)
    refuse_for("rows of their own, got data.carry_state", "remove one of the keys");
  if (!config.log.observe.empty())
    refuse_for("no log.observe, whose steps run once more on one rank", "--set log.observe=\"\"");
  const auto check_length = [&](std::int64_t length) {
    if (length < 2 * parts)
      refuse_for(fmt::format("rows of at least {} tokens, 2 for each rank, got {}", 2 * parts, length),
                 "longer rows, or fewer sequence_shards");
  };
  check_length(config.data.sequence_length);
  for (const Stage& stage : config.run.stages) check_length(stage.sequence_length);
}

}  // namespace mantissa::config
