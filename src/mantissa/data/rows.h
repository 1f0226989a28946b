// The rows that a run trains on, and those over which a model is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/config/run_config.h"
#include "mantissa/model/config.h"
#include "mantissa/text/dataset.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::data {

/// Returns the rows that [data] describes, for `model`; from `tokens` where there are any. Throws ConfigError
/// where text would be read as bytes and the ids of the config's model are of another tokenizer.
text::Dataset load_dataset(const config::RunConfig& config, const model::ModelConfig& model,
                           const std::vector<std::int32_t>& tokens);

/// Adds a note on the entries of the vocabulary that the data cannot have, where there are any.
void add_note(const config::RunConfig& config, const model::ModelConfig& model, config::Told& told);

/// Returns the rows of files, or of held-out puzzles where `files` is {"kk"}, in their order. Throws
/// ConfigError where they are text, and the model's ids are not bytes.
text::StepData file_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                         const std::string& format, std::int64_t sequence_length);

}  // namespace mantissa::data
