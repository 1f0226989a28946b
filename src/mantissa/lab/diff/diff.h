// The comparison of two runs, states, checkpoints or traces. One value, printed as text for people and as
// JSON for programs.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/convert/tensor_sets.h"
#include "mantissa/lab/diff/formats.h"
#include "mantissa/lab/diff/rounding.h"
#include "mantissa/lab/diff/run_differences.h"
#include "mantissa/lab/diff/subject.h"

namespace mantissa::lab {

struct Diff {
  Subject a, b;
  bool bitwise = false;                    // compare bytes; otherwise values
  std::optional<RunDifferences> runs;      // of two runs
  std::optional<StateDifferences> states;  // of two states
  std::vector<ConfigDifference> config;    // of two states
  std::optional<convert::TensorDifferences>
      tensors;                               // of two checkpoints or traces, or of a checkpoint and a state
  std::optional<RoundingVerdict> rounding;   // of two traces that differ and have common values or gradients
  std::optional<FormatDifferences> formats;  // of two traces

  bool is_trace() const { return a.kind == Subject::Kind::trace; }
  bool equal() const;
};

/// Compares what the paths contain. Throws FileError if one of them cannot be read or they cannot be
/// compared.
Diff diff(const std::filesystem::path& a, const std::filesystem::path& b, bool bitwise,
          const runtime::Device& device);

/// Returns the result in one sentence: the first step, op or tensor that differs, and by how much.
std::string verdict(const Diff& diff);

/// Returns the lines that follow the verdict of two traces: where their formats differ, and whether rounding
/// explains their differences.
std::vector<std::string> trace_verdicts(const Diff& diff);

/// Returns "12 of 4096 values, at most 1 ulp of bf16".
std::string extent_text(const convert::DifferentTensor& tensor, bool bitwise);
/// Returns a value of metrics.jsonl or state.json as short text.
std::string short_text(const nlohmann::json& value);

/// Returns the result in lines of at most 80 columns, unless a name is longer, with at most `limit` tensors.
/// For a bitwise comparison, one line.
std::string to_text(const Diff& diff, std::size_t limit);
/// Returns the fields of docs/cli/diff.md.
std::string to_json(const Diff& diff);

}  // namespace mantissa::lab
