// Data in memory, and the puzzles of the built-in generator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/config.h"

namespace mantissa::api {

/// A label that is not predicted, as in PyTorch.
inline constexpr std::int32_t kIgnoredLabel = -100;

/// A row of token ids. Labels and weights are aligned with the ids: the model predicts labels[t] from the ids
/// before t, and the loss counts this prediction weights[t] times. The first label and weight are unused.
struct Row {
  std::vector<std::int32_t> ids;          // 2 to data.sequence_length + 1, each below the model's vocab_size
  std::vector<std::int32_t> labels = {};  // kIgnoredLabel: not predicted; empty: the ids
  std::vector<float> weights = {};        // finite, at least 0; empty: 1 for each
  /// Lengths of documents, at least 2 ids each, that make up the row. Each attends only to itself, at
  /// positions from 0, and its first id is not predicted. Empty: one document.
  std::vector<std::int64_t> documents = {};
};

/// Data in memory, in place of the config's data.source. Set exactly one of `tokens`, `rows` and `next`.
struct Data {
  std::vector<std::int32_t> tokens = {};  // one stream, split into sequences like files
  std::vector<Row> rows = {};             // separate rows; data.shuffle and data.validation apply
  /// Returns the batch.global_batch_size rows of `step`, from 1. Called once before each step, on the thread
  /// that called train(). A resumed run requests only the remaining steps; it has the same bits if the rows
  /// of a step depend only on its number. An exception ends the run, as one from an event does.
  std::function<std::vector<Row>(std::int64_t step)> next = {};
  std::vector<Row> held_out = {};  // replaces the rows that data.validation would hold out
};

/// Returns the values of data.format and of ShardOptions::format, which are those of text.
std::vector<std::string> data_formats(bool only_text = false);

struct PuzzleOptions {
  std::int64_t count = 10;
  int people_min = 2, people_max = 8;
  std::uint64_t seed = 1;
  bool held_out = false;
  std::string style = "short";  // or "logic-rl"
};
/// Returns Knights-and-Knaves puzzles, one JSON object each.
std::vector<std::string> puzzles(const PuzzleOptions& options);
/// Writes them to the file `out`, one on each line. Throws FileError if `out` exists, unless `overwrite`, and
/// ResourceError if the disk is full; the old file then keeps its contents.
void write_puzzles(const PuzzleOptions& options, const std::filesystem::path& out, bool overwrite = false);

struct ShardOptions {
  std::vector<std::string> files;  // names and globs of text, JSON and CSV, also with .gz or .zst
  std::string format = "auto";
  std::string fields = {};  // the names of fields: "text=body", or "text=title+body" to join them
  std::string tokenizer;    // as for Tokenizer
  std::filesystem::path out;
  std::int64_t shard_tokens = 100'000'000;
  int threads = 0;         // 0: all processors; changes no byte
  bool overwrite = false;  // replaces a directory of shards
};
struct ShardProgress {
  std::int64_t tokens = 0, documents = 0;
  double share = 0;  // of the bytes of all files
  std::string file = {};
};
struct ShardReport {
  std::int64_t tokens = 0, documents = 0, shards = 0;
  bool interrupted = false;  // by a stop: nothing was written
};
/// Writes text as token files into the directory `out`, which appears complete or not at all (docs/data.md,
/// "Shards"). Files are read as streams. Throws ConfigError, FileError with file and line, ResourceError.
ShardReport write_shards(const ShardOptions& options,
                         const std::function<void(const ShardProgress&)>& on_progress = {},
                         std::stop_token stop = {});

/// A description of data. Lengths are in tokens.
struct DataDescription {
  std::int64_t tokens = 0, documents = 0;
  std::int64_t shortest = 0, median = 0, p90 = 0, longest = 0;  // documents
  double mean = 0;
  std::int64_t sequence_length = 0, rows = 0, held_out_rows = 0;
  double padding = 0;                        // share of the places in rows
  double masked = 0;                         // share of the other inputs after which nothing is predicted
  std::int64_t vocabulary = 0, entries = 0;  // entries: those that occur
  std::vector<std::string> samples;          // beginnings of rows
  std::vector<std::vector<std::int32_t>> sample_ids;  // the first ids of the same rows
  struct Source {
    std::string name;
    double share = 1;                          // of the training rows
    std::int64_t rows = 0, held_out_rows = 0;  // of this source
    std::int64_t tokens = 0;
    double repeats = 0;  // how often the config's run uses each of these rows; 0 for files
  };
  std::vector<Source> sources;  // one, or one for each of data.weights
  struct Stage {
    std::int64_t steps = 0, sequence_length = 0, global_batch_size = 0;
    std::int64_t rows = 0;  // for training
    double repeats = 0;     // how often the stage uses each of them
  };
  std::vector<Stage> stages;       // of [[run.stage]]; the members above are of the first one
  std::vector<std::string> notes;  // for the user
};
struct InspectOptions {
  std::vector<std::string> files;
  std::string format = "auto";
  std::string fields = {};       // the names of fields, as ShardOptions::fields
  std::string id_type = "auto";  // of ids without a header: auto (by the vocabulary), uint16 or uint32
  std::string tokenizer = {};    // empty: bytes for text, and for ids the one that a shard names
  std::int64_t vocabulary = 0;   // 0: the tokenizer's; for ids without one 65,535
  std::int64_t sequence_length = 256;
  bool packing = false;
  std::int64_t samples = 3;
};
/// Describe files, and the data of a config. Throw ConfigError, FileError.
DataDescription inspect_data(const InspectOptions& options);
DataDescription inspect_data(const Config& config, std::int64_t samples = 3);

}  // namespace mantissa::api
