// Training on pairs of answers: direct preference optimization, and reward models.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/train/steps/task.h"

namespace mantissa::train {

/// Pairs of rows, items of two (text::paired), and their margins by StepData::origin.
struct Pairs {
  text::Dataset rows;
  std::vector<double> margins;
  std::vector<double> held_out_margins = {};  // of rows that are held out apart; empty: there are none
};

/// Returns the task of train.objective = "dpo" or "reward". Before each step of dpo, a pass of the reference
/// over the step's rows gives their log-probabilities. Throws as Reference does.
std::unique_ptr<Task> preference_task(const config::RunConfig& config, const weights::ModelSource& source,
                                      Pairs pairs, const runtime::Device& device);

}  // namespace mantissa::train
