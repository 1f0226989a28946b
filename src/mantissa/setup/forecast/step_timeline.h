// A step of ranks on a time line: what they compute, and the transfers that take place meanwhile.
#pragma once

#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/forecast/ranks.h"

namespace mantissa::forecast {

/// The seconds of an optimizer step.
struct StepTimeline {
  double step = 0;
  double sending = 0;  // in which a link carries what the ranks send
  double waiting = 0;  // in which a rank computes nothing, because it waits for transfers
};

/// Returns those of a rank. Transfers follow each other in the order in which they start. What starts
/// together takes the time of the machine that sends or receives most. `part` is that of any rank, `share`
/// the config of its shards, `computing` the seconds of the step without transfers, and `keys` the bytes of
/// keys and values that a rank sends.
StepTimeline forecast_timeline(const programs::RunPart& part, const config::RunConfig& share, int nodes,
                               const Network& network, const Machine& machine, double computing, double keys);

}  // namespace mantissa::forecast
