// An argument of `diff`: a run, a state, a checkpoint or a trace.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

namespace mantissa::lab {

struct Subject {
  enum class Kind { run, state, weights, trace };
  Kind kind = Kind::weights;
  std::filesystem::path path;     // as given, or the part of a run that stands for it
  std::filesystem::path weights;  // the path for io::WeightFiles; empty for a run
};
using Subjects = std::pair<Subject, Subject>;

/// Returns "run", "state", "checkpoint" or "trace".
std::string_view name(Subject::Kind kind);

/// Finds what `path` is. Throws FileError if nothing is there or it is none of these.
Subject find_subject(const std::filesystem::path& path);

/// Makes the subjects comparable: next to a state, a run stands for its state of the same step; next to a
/// checkpoint, for its model or its newest state. Throws FileError if the subjects have no common kind.
Subjects matched(Subject a, Subject b);

}  // namespace mantissa::lab
