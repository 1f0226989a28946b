#include "mantissa/lab/diff/subject.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/lab/diff/run_differences.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& path) {
  const auto has = [&](const char* part) { return disk::exists(path / part); };
  if (!disk::is_directory(path) || io::has_usual_weights(path)) return false;
  return has("metrics.jsonl") || has("config.toml") || disk::is_directory(path / "state");
}

/// Returns the state of `run` with the step of `state`.
Subject state_of(const Subject& run, const Subject& state) {
  const std::int64_t step = read_state_header(state.path).step;
  std::string steps;
  for (const io::FoundState& found : io::find_states(run.path)) {
    if (found.step == step) return {Subject::Kind::state, found.path, found.path / io::kStateTensors};
    steps += fmt::format("{}{}", steps.empty() ? "" : ", ", found.step);
  }
  throw FileError(
      "{}: expected a state of step {}, as {} has; it has {}. Fix: give the two states to compare",
      run.path.string(), step, state.path.string(),
      steps.empty() ? "no state" : "states of the steps " + steps);
}

/// Returns the model of `run`, or its newest state.
Subject weights_of(const Subject& run) {
  const io::ModelPath source = io::open_model(run.path);
  const bool state = source.kind == io::ModelPath::Kind::state;
  return {state ? Subject::Kind::state : Subject::Kind::weights, source.path, source.weights};
}

}  // namespace

std::string_view name(Subject::Kind kind) {
  switch (kind) {
    case Subject::Kind::run:
      return "run";
    case Subject::Kind::state:
      return "state";
    case Subject::Kind::weights:
      return "checkpoint";
    case Subject::Kind::trace:
      return "trace";
  }
  return "";
}

Subject find_subject(const fs::path& path) {
  if (path.extension() == ".toml" || path.extension() == ".jsonl") {
    throw FileError(
        "{}: expected a run directory, a state, a checkpoint or a trace. Fix: give the run directory",
        path.string());
  }
  if (is_run(path)) return {Subject::Kind::run, path, {}};
  const io::ModelPath source = io::open_model(path);
  Subject found{Subject::Kind::weights, source.path, source.weights};
  if (source.kind == io::ModelPath::Kind::state) found.kind = Subject::Kind::state;
  if (source.kind == io::ModelPath::Kind::file && is_trace(io::WeightFiles(source.weights)))
    found.kind = Subject::Kind::trace;
  return found;
}

Subjects matched(Subject a, Subject b) {
  using Kind = Subject::Kind;
  if ((a.kind == Kind::trace) != (b.kind == Kind::trace)) {
    const Subject& other = a.kind == Kind::trace ? b : a;
    throw FileError(
        "diff: {} is a {} and {} is a {}, which have no common tensors. Fix: write a trace of "
        "the other one: mantissa trace {} --tokens FILE --out FILE",
        a.path.string(), name(a.kind), b.path.string(), name(b.kind), other.path.string());
  }
  if (a.kind == Kind::run && b.kind == Kind::state) a = state_of(a, b);
  if (b.kind == Kind::run && a.kind == Kind::state) b = state_of(b, a);
  if (a.kind == Kind::run && b.kind == Kind::weights) a = weights_of(a);
  if (b.kind == Kind::run && a.kind == Kind::weights) b = weights_of(b);
  return {std::move(a), std::move(b)};
}

}  // namespace mantissa::lab
