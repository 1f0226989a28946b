// Comparisons: policies or settings side by side, trained now or in run directories.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/ranks.h"

namespace mantissa::api {

struct CompareOptions {
  std::vector<std::string> policies;  // the first is that of the reference; none: the config's own
  std::vector<std::string> vary;      // "section.key=a,b": one run for each combination of values. The values
                                      // of run.seed are the seeds of every run, in place of `seeds`
  std::vector<std::string> rules;     // for all runs
  std::vector<std::string> overrides;  // "section.key=value", for all runs
  std::filesystem::path deepspeed{};   // empty: none
  std::int64_t steps = 0;              // at most, from the beginning; 0: all of run.steps
  std::int64_t seeds = 3;  // of every policy: run.seed and the numbers after it; 1 gives no verdict
  Hardware hardware;
  bool allow_programs = false;  // Config::allow_programs()
  Ranks ranks;  // that share the runs: each calls compare() alike, and has events of its own runs
};

struct CompareReport {
  std::string verdict;             // one paragraph
  std::string text;                // the verdict and a table, for people
  std::string json;                // compare.json (docs/cli/compare.md)
  std::string html;                // report.html: one page without references to other files
  std::string csv;                 // losses: a row for each step, a column for each run
  std::vector<std::string> notes;  // how the configs were read
  std::int64_t runs = 0;           // that ended
  bool interrupted = false;
};

/// A step of a comparison: number `run` of `runs`, named `name`.
struct CompareStep {
  std::string_view name;
  std::int64_t run = 0, runs = 0, step = 0, steps = 0;
  double loss = 0;
};
using OnCompareStep = std::function<void(const CompareStep&)>;

/// Splits "a,b,c" at commas outside of brackets, braces and quotes.
std::vector<std::string> split_values(std::string_view text);

/// Trains the config with each seed for each policy and combination of varied settings, in memory, and
/// compares the runs with the first, seed by seed. Reads all configs before the first run. Throws FileError
/// and ConfigError as Config::load() and train() do, and ConfigError if there is only one run. Every rank has
/// the same report.
CompareReport compare(const std::filesystem::path& config, const CompareOptions& options,
                      const OnCompareStep& on_step = {}, std::stop_token stop = {});

/// Compares runs from their directories. Throws FileError and ConfigError.
CompareReport compare(const std::vector<std::filesystem::path>& runs, const Hardware& hardware = {});

}  // namespace mantissa::api
