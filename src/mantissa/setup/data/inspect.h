// A description of data: documents, rows, masked tokens, and the entries of the vocabulary that occur.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/rows/dataset.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

/// Quantiles of lengths in tokens: the smallest length that at least this share of the documents do not
/// exceed.
struct Lengths {
  std::int64_t min = 0, median = 0, p90 = 0, max = 0;
  double mean = 0;
};

struct DataDescription {
  std::int64_t tokens = 0;  // of the documents
  std::int64_t documents = 0;
  Lengths lengths;
  std::int64_t sequence_length = 0, rows = 0, held_out_rows = 0;
  double padding = 0;  // share of the rows' inputs
  double masked = 0;   // share of the other inputs after which nothing is predicted
  std::int64_t vocabulary = 0;
  std::int64_t entries = 0;                           // of the vocabulary that occur in the rows
  std::vector<std::string> samples;                   // beginnings of rows; ids without a tokenizer
  std::vector<std::vector<std::int32_t>> sample_ids;  // the first ids of the same rows
  /// A source of the rows. `repeats` is how often a run of the config uses each of its rows, 0 for files.
  struct Source {
    text::Dataset::SourceCounts counts;
    double repeats = 0;
  };
  std::vector<Source> sources;
  /// The stages of a run, none without [[run.stage]]. All other members are of the first one.
  struct Stage {
    std::int64_t steps = 0, sequence_length = 0, global_batch_size = 0, rows = 0;
    double repeats = 0;  // of each of the rows
  };
  std::vector<Stage> stages;
  std::vector<std::string> notes;  // for the user, such as on a tokenizer that is not used
};

/// Describes all rows of `set`. `tokenizer` may be null. `samples` rows at equal distances are shown. A run
/// uses `used` rows, counted over all epochs; 0 for files without a run.
DataDescription describe(const text::Dataset& set, std::int64_t sequence_length, std::int64_t vocabulary,
                         const tokenizer::Tokenizer* tokenizer, std::int64_t samples, std::int64_t used = 0);

/// Describes the data of a config.
DataDescription describe_run(const config::RunConfig& config, const model::ModelConfig& model,
                             std::int64_t samples);

struct InspectFiles {
  std::vector<std::string> files;
  std::string format = "auto";
  std::string fields = {};  // the names of fields, as --fields
  std::string id_type = "auto";
  std::string tokenizer;        // empty: bytes for text; for ids the one that a shard names, if it is there
  std::int64_t vocabulary = 0;  // 0: the tokenizer's; for ids without one 65535, of binidx 65536
  std::int64_t sequence_length = 256;
  bool packing = false;
  std::int64_t samples = 3;
};
/// Describes files.
DataDescription describe_files(const InspectFiles& options);

}  // namespace mantissa::data
