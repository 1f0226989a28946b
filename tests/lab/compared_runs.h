// Runs of a comparison with given losses and rewards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/lab/compare/compare.h"

namespace mantissa::test {

using lab::ComparedRun, lab::ComparedStep, lab::Comparison;

inline ComparedRun constant(const std::string& name, std::vector<double> losses) {
  ComparedRun run;
  run.name = name;
  for (std::size_t i = 0; i < losses.size(); ++i)
    run.steps.push_back({static_cast<std::int64_t>(i) + 1, losses[i]});
  return run;
}

/// Adds a run of the policy `of` with another seed.
inline void add_seed(Comparison& c, std::size_t of, std::uint64_t seed, ComparedRun run) {
  run.seed = seed;
  run.of = of;
  c.reseeded.push_back(std::move(run));
}

inline ComparedRun online(const std::string& name, std::vector<double> rewards,
                          std::optional<double> held_out = {}) {
  ComparedRun run = constant(name, std::vector<double>(rewards.size(), 0.001));
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    run.curves["reward"].steps.push_back(run.steps[i].step);
    run.curves["reward"].values.push_back(rewards[i]);
  }
  if (held_out) run.curves["validation_accuracy"] = {{run.steps.back().step}, {*held_out}};
  return run;
}

/// Repeats all runs with two more seeds, which change nothing.
inline void repeat(Comparison& c) {
  c.reseeded.clear();
  for (const std::uint64_t seed : {8U, 9U}) {
    for (std::size_t i = 0; i < c.runs.size(); ++i) add_seed(c, i, seed, c.runs[i]);
  }
  judge(c);
}

/// Returns a run with held-out prompts.
inline ComparedRun answering(const char* name, double accuracy, double prompts) {
  ComparedRun r = online(name, {-3, 1}, accuracy);
  r.curves["validation_prompts"] = {{0, 2}, {prompts, prompts}};
  return r;
}

}  // namespace mantissa::test
