// The verdict of a comparison in words.
#pragma once

#include <optional>
#include <string>

#include "mantissa/lab/compare/compare.h"

namespace mantissa::lab {

inline constexpr double kPromptErrors = 2;  // a gap may come from the choice of prompts up to so many errors
inline constexpr double kSame = 2;          // standard errors that every verdict of "the same" allows

/// Returns the standard error of the gap: by the seeds or, if that is larger, by the choice of prompts. Null
/// for one seed.
std::optional<double> error_of(const ComparedRun& run);

/// Returns "stopped at step 12: …" or "did not start: …".
std::string stop_text(const ComparedRun& run);

/// Returns the name of one of the comparison's `runs` for a sentence: in quotation marks if it has signs that
/// would end a part of the sentence, and "run 2", with its number in tables, if it is long.
std::string name_in_text(const Comparison& comparison, const ComparedRun& run);

/// Returns a paragraph from the results of the runs.
std::string verdict_of(const Comparison& comparison);

/// Returns the most important result in a few words, which name the run.
std::string headline_of(const Comparison& comparison);

}  // namespace mantissa::lab
