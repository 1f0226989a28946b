// Training on answers with a label: train.objective = "kto".
#pragma once

#include <memory>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/row.h"
#include "mantissa/train/steps/task.h"

namespace mantissa::train {

/// Rows of answers, and by StepData::origin which of them are desirable.
struct LabelledAnswers {
  text::Dataset rows;
  std::vector<bool> desirable;
  std::vector<bool> held_out_desirable = {};  // of rows that are held out apart; empty: there are none
};

/// Returns the rows whose log-probabilities estimate the divergence from the reference: the prompt of row i
/// with the answer of row i − 1, that of the first row with the last answer. An answer begins with the first
/// token that has a weight, and reaches to the end of its row. Ends of rows that are too long are left out.
text::StepData mismatched(const text::StepData& rows);

/// Returns the task. Before each step, a pass of the reference over the step's rows gives their
/// log-probabilities, and for kto.loss = "kto" passes of the reference and of the model in training over
/// mismatched() rows give the divergence: the mean of the differences, at least 0. Throws as Reference does.
std::unique_ptr<Task> kto_task(const config::RunConfig& config, const weights::ModelSource& source,
                               LabelledAnswers answers, const runtime::Device& device);

}  // namespace mantissa::train
