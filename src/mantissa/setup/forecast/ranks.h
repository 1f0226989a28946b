// What the ranks that share a run take and send for each other.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/forecast/other_passes.h"
#include "mantissa/setup/programs/training.h"

namespace mantissa::forecast {

/// Returns the bytes that the rank of `part` takes for sums over shards, with room for those of other ranks.
/// Of gradients that are streamed to their owners it includes the complete sums.
std::size_t sums_bytes(const programs::RunPart& part);

/// The bytes that a rank sends in an optimizer step, without the envelopes of messages.
struct SentBytes {
  double gradients = 0;  // in the format of sums, to the ranks that add them and, without ZeRO, back
  double weights = 0;    // after the update, to ranks that keep what steps read
  double gathered = 0;   // while steps read them (stage 3)
  double keys = 0;    // with values, and what later tokens add to their gradients, to ranks that share rows
  double states = 0;  // of recurrences and tokens before a block, and their gradients, to the same ranks
  double all() const { return gradients + weights + gathered + keys + states; }
};
/// Returns them for the rank of `part`. `config` is that of its stage.
SentBytes sent_bytes(const programs::RunPart& part, const config::RunConfig& config);

/// Returns the bytes that rank `rank` sends to each other one after the update.
double updated_bytes(const programs::RunPart& part, int rank);

/// What connects the machines of the ranks.
struct Network {
  double latency = 0;           // seconds of a short message
  double bytes_per_second = 0;  // of the link of one machine, in one direction
};
/// Reads them from the output of `mantissa doctor --json` under mpirun. Throws FileError.
Network read_network(const std::filesystem::path& path);

struct RankForecast {
  int rank = 0;
  MemoryForecast memory;
  SentBytes sent = {};
};

/// A step of a run that `ranks` ranks share, on `nodes` machines like this one.
struct RanksForecast {
  int ranks = 1, nodes = 1;
  std::int64_t stage = 0;  // of ZeRO
  bool streams = false;    // gradients leave while others are computed
  /// All of at most 16 ranks; of more the first, and the one that owns most.
  std::vector<RankForecast> of = {};
  double computing = 0;  // seconds of a rank
  // Seconds of a step, of its transfers, and in which a rank waits for these; null: no network is known
  // (step_timeline.h)
  std::optional<double> seconds = {}, sending = {}, waiting = {};

  const RankForecast& largest() const;
  /// Returns the share of the transfers that takes place while a rank computes.
  std::optional<double> hidden() const;
};

/// Forecasts them. `alone` is the memory of one process with `passes`, of which data and process are the
/// same. Each rank runs `passes` over its rows, and holds their weights. Throws ConfigError if the ranks
/// cannot share the run.
RanksForecast forecast_ranks(const config::RunConfig& config, const model::ModelConfig& model,
                             const runtime::Device& device, int ranks, int nodes,
                             const std::optional<Network>& network, const Machine& machine,
                             const MemoryForecast& alone, std::span<const OtherPass> passes = {});

}  // namespace mantissa::forecast
