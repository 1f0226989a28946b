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

/// Data in memory, in place of a config's data.source: tokens as one stream, rows, or a source of the rows of
/// each step. `held_out`: rows in place of the share of data.validation.
struct Memory {
  std::vector<std::int32_t> tokens = {};
  std::vector<text::Row> rows = {};
  text::RowSource source = {};
  std::vector<text::Row> held_out = {};
  bool any() const { return !tokens.empty() || !rows.empty() || source; }
};

/// Returns the rows that [data] describes, for `model`; from `memory` where there are any. Throws ConfigError
/// where text would be read as bytes and the ids of the config's model are of another tokenizer, and for
/// ids, labels, weights and numbers of rows that do not fit.
text::Dataset load_dataset(const config::RunConfig& config, const model::ModelConfig& model,
                           Memory memory = {});

/// Adds a note on the entries of the vocabulary that the data cannot have, where there are any.
void add_note(const config::RunConfig& config, const model::ModelConfig& model, config::Told& told);

/// Returns the rows of files, or of held-out puzzles where `files` is {"kk"}, in their order. Throws
/// ConfigError where they are text, and the model's ids are not bytes.
text::StepData file_rows(const weights::ModelSource& source, const std::vector<std::string>& files,
                         const std::string& format, std::int64_t sequence_length);

/// Returns tokens or rows in memory in their order: sequences of `sequence_length` tokens, or rows of up to
/// one more. Throws ConfigError as load_dataset() does.
text::StepData memory_rows(const model::ModelConfig& model, Memory memory, std::int64_t sequence_length);

}  // namespace mantissa::data
