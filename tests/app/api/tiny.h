// A run small enough for tests, and temporary folders.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/api/mantissa.h"

namespace mantissa::testing {

/// True if `text` contains `part`.
inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// A folder for this test, removed at its end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = "mantissa-" + std::string(test->name()) + "-" + std::to_string(getpid());
    for (char& c : name) c = c == '/' ? '-' : c;
    path_ = std::filesystem::temp_directory_path() / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ostringstream bytes;
  if (std::ifstream in(path, std::ios::binary); in.peek() != std::ifstream::traits_type::eof())
    bytes << in.rdbuf();
  return bytes.str();
}

/// Returns the lines of a run's metrics.jsonl that have a loss.
inline std::vector<nlohmann::json> steps_of(const std::filesystem::path& run) {
  std::vector<nlohmann::json> steps;
  std::istringstream lines(read_all(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("loss")) steps.push_back(std::move(json));
  }
  return steps;
}

/// Returns metrics.jsonl without values that depend on the clock. A regular expression takes seconds for it.
inline std::string timeless(const std::string& metrics) {
  std::string kept;
  for (std::size_t at = 0; at < metrics.size();) {
    const std::size_t next = std::min(metrics.find(",\"", at), metrics.size());
    kept.append(metrics, at, next - at);
    at = next;
    for (const char* name : {"tokens_per_second", "peak_share", "seconds", "fallback_share"}) {
      const std::string key = ",\"" + std::string(name) + "\":";
      if (metrics.compare(at, key.size(), key) == 0) at = metrics.find_first_of(",}", at + key.size());
    }
    if (at == next && at < metrics.size()) kept += metrics[at++];
    at = std::min(at, metrics.size());
  }
  return kept;
}

inline api::TrainOptions into(const std::filesystem::path& out) {
  api::TrainOptions o;
  o.out = out;
  return o;
}

/// Expects that the run, continued from each of `steps`, ends with the bytes of a run that never stopped.
inline void expect_same_bytes_from(const api::Config& config, std::initializer_list<std::int64_t> steps) {
  const TemporaryFolder folder;
  const api::Summary whole = api::train(config, into(folder / "run"));
  const std::string metrics = timeless(read_all(folder / "run/metrics.jsonl"));
  for (const std::int64_t step : steps) {
    api::TrainOptions again = into(folder / "run");
    again.resume = step;
    EXPECT_EQ(api::train(config, again).weights_xxh64, whole.weights_xxh64) << step;
    EXPECT_EQ(timeless(read_all(folder / "run/metrics.jsonl")), metrics) << step;
  }
}

/// One layer on puzzles, `steps` steps of 4 rows of 32 tokens, under `policy`.
inline std::string tiny_config(int steps, const std::string& policy, int micro = 2) {
  return "[run]\nsteps = " + std::to_string(steps) +
         "\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\nnum_attention_heads = "
         "2\nvocab_size = 256\n"
         "tie_word_embeddings = true\n[data]\nsource = \"kk\"\nsequence_length = 32\nvalidation = "
         "0.05\n[batch]\nglobal_batch_size = 4\n"
         "micro_batch_size = " +
         std::to_string(micro) +
         "\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 2\n[checkpoint]\ninterval = 3\nkeep = "
         "3\n[precision]\npolicy = \"" +
         policy + "\"\n";
}

}  // namespace mantissa::testing
