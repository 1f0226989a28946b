// The number of ranks that can share a run.
#pragma once

#include <string>

#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Throws ConfigError, with the numbers that would fit, if as many ranks cannot share the run.
void check_ranks(const RunConfig& config, int ranks);

/// Returns the most tokens of a row that one rank has: an early and a late block
/// (core/tensor/row_blocks.h), if ranks share rows.
std::int64_t tokens_per_rank(const RunConfig& config);

/// Sets distributed.sequence_shards to 1, for a command that runs whole rows. Returns a note about it, or ""
/// if the rows are whole.
std::string use_whole_rows(RunConfig& config);

/// Refuses distributed.sequence_shards in a config whose rows ranks cannot share.
void check_shared_rows(const RunConfig& config, const Entries& entries);

}  // namespace mantissa::config
