// Trains the runs of a comparison in memory, one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/lab/compare/compare.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::lab {

/// A run to train.
struct PlannedRun {
  std::string name;
  std::vector<std::string> settings;
  config::RunConfig config;
  std::shared_ptr<const runtime::Device> device;
  std::size_t of = 0;  // of a re-seeded run: the index of the same policy in PlannedComparison::runs
};

struct PlannedComparison {
  std::string title;
  std::vector<PlannedRun> runs;      // the first is the reference
  std::vector<PlannedRun> reseeded;  // the same with other seeds, seed by seed, each time the reference first
  std::int64_t steps = 0;            // at most, from the beginning of each run; 0: all
};

/// The place of a step in a comparison.
struct ComparisonProgress {
  std::string_view run;     // its name
  std::int64_t number = 0;  // of the run, from 1
  std::int64_t runs = 0;    // of the comparison
  std::int64_t step = 0, steps = 0;
  double loss = 0;
};
using OnComparedStep = std::function<void(const ComparisonProgress&)>;

/// Trains every run without writing anything, and judges. The runs have the bits of `train`. A run that stops
/// is compared up to its last step, and so is a run other than the first that cannot start; neither runs with
/// more seeds. An interrupted comparison contains the runs that ended before. Throws ConfigError, FileError
/// and ResourceError if the reference cannot start.
///
/// `ranks` share the runs, if they are several: all call it alike, each trains one run at a time in this
/// process alone, and all return the comparison of one process, except for times. Each calls on_step for its
/// own runs. Null: this process alone.
Comparison train_and_compare(const PlannedComparison& plan, const OnComparedStep& on_step = {},
                             const std::stop_token& stop = {}, comm::Communicator* ranks = nullptr);

}  // namespace mantissa::lab
