// The rows of train.objective = "kto": answers as ids, each desirable or not.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/rows/dataset.h"

namespace mantissa::data {

/// The answers of a run, for training and held out, by their numbers in StepData::origin.
struct LabelledSet {
  text::Dataset rows;                               // the last answer of each is predicted
  std::vector<bool> desirable, held_out_desirable;  // the latter of separate files; empty: there are none
};

/// Reads the rows of [data] for train.objective = "kto", and adds lines about them to `notes` unless it is
/// null. Throws FileError with file and line for a row without a label, and ConfigError for rows that are too
/// long, and if none is left.
LabelledSet load_labelled(const config::RunConfig& config, const model::ModelConfig& model,
                          std::vector<std::string>* notes);

}  // namespace mantissa::data
