// The rows of training and of evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {

/// Data in memory, in place of a config's data.source: tokens as one stream, rows, or a source of the rows of
/// each step. `held_out` replaces the rows that data.validation would hold out.
struct Memory {
  std::vector<std::int32_t> tokens = {};
  std::vector<text::Row> rows = {};
  text::RowSource source = {};
  std::vector<text::Row> held_out = {};
  bool any() const { return !tokens.empty() || !rows.empty() || source; }
};

/// Returns the rows of [data] for `model`, or those of `memory` unless it is empty. Throws ConfigError for
/// text if data.tokenizer does not fit the config's model, and for invalid ids, labels, weights and numbers
/// of rows. Under train.objective = "sft" the rows are those of conversations; adds a line about them to
/// `notes` unless it is null. So does data.order = "rwkv", about its prime. `documents`: finds where the
/// documents of streams begin, which only descriptions need without data.packing.
text::Dataset load_dataset(const config::RunConfig& config, const model::ModelConfig& model,
                           Memory memory = {}, std::vector<std::string>* notes = nullptr,
                           bool documents = false);

/// Returns a line on the prime of data.order = "rwkv", or "" for another order.
std::string order_note(const config::DataSection& data, const text::Dataset& set);

/// Throws ConfigError if the tokenizer of the config's texts is "byte", and the model's ids are not bytes. A
/// randomly initialized model may have more entries than bytes.
void check_bytes(const config::RunConfig& config, const model::ModelConfig& model);

/// Adds notes on entries of the vocabulary that cannot occur in the data, and on sequences longer than those
/// that a model of files has learned, if there are any.
void add_notes(const config::RunConfig& config, const model::ModelConfig& model, config::Told& told);

/// Splits a stream into rows of `sequence_length` in its order. A shorter text becomes one short row. Throws
/// ConfigError for fewer than two tokens; `name` stands for the stream.
text::StepData stream_rows(std::vector<std::int32_t> ids, std::int64_t sequence_length,
                           const std::string& name);

/// Returns tokens or rows in memory in order: sequences of `sequence_length` tokens, or rows with at most one
/// more. Throws ConfigError as load_dataset() does.
text::StepData memory_rows(const model::ModelConfig& model, Memory memory, std::int64_t sequence_length);

}  // namespace mantissa::data
