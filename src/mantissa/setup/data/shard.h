// Text files as shards of token ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace mantissa::data {

struct ShardOptions {
  std::vector<std::string> files;  // names and globs of text, JSON and CSV
  std::string format = "auto";
  std::string fields = {};  // the names of fields, as --fields
  std::string tokenizer;    // as data.tokenizer, but not "model"
  std::filesystem::path out;
  std::int64_t shard_tokens = 100'000'000;
  int threads = 0;         // 0: all processors; changes no byte
  bool overwrite = false;  // replaces the directory `out`
};

struct ShardProgress {
  std::int64_t tokens = 0, documents = 0;
  double share = 0;       // of the bytes of all files
  std::string file = {};  // that is read
};

struct ShardReport {
  std::int64_t tokens = 0, documents = 0, shards = 0;
  bool interrupted = false;  // by a stop: nothing was written
};

/// Writes shard-00000.bin, shard-00001.bin, … of at most `shard_tokens` ids each, in the layout of llm.c
/// (text/rows/token_file.h), and shards.json, which describes them, into the directory `out`. The directory
/// appears complete or not at all. Each document ends with the tokenizer's separator; it may continue in the
/// next shard. Files are read as streams. Throws ConfigError, FileError with file and line, and ResourceError
/// if the disk is full.
ShardReport write_shards(const ShardOptions& options,
                         const std::function<void(const ShardProgress&)>& on_progress = {},
                         const std::stop_token& stop = {});

}  // namespace mantissa::data
