// The runs in a folder: how far each is, what it lost last, and whether it can continue.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::lab {

/// What a run directory says of its run. Numbers are absent where no file has them.
struct ListedRun {
  enum class State { complete, running, stopped, unreadable };

  std::filesystem::path path;
  State state = State::stopped;
  std::optional<std::int64_t> process = {};  // that writes the run
  std::int64_t step = 0;                     // the last one in metrics.jsonl
  std::int64_t steps = 0;                    // of the whole run, by its config
  std::optional<std::int64_t> saved = {};    // the step of the newest state
  std::optional<double> loss = {}, validation_loss = {};
  std::optional<double> reward = {}, validation_reward = {};  // of rl
  std::string objective = {};
  std::string policy = {};  // the short line
  std::chrono::system_clock::time_point changed = {};
  std::string fault = {};  // why it is unreadable
};

struct RunList {
  std::vector<ListedRun> runs;      // the newest first
  std::vector<std::string> faults;  // of folders that could not be searched
};

/// Finds the run directories in `folder`, itself included, at any depth. Does not follow links, and skips
/// hidden folders. A run is a directory whose list of files names those of a training run, or with a
/// config.toml and a metrics.jsonl. Reads the last 16 MB of metrics.jsonl at most. Throws FileError if
/// `folder` cannot be read.
RunList list_runs(const std::filesystem::path& folder);

}  // namespace mantissa::lab
