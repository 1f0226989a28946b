// The rewards of the responses in a file.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/text/reward/rule.h"

namespace mantissa::reward {

/// Throws FileError as score_file() does for a line of the file, except for Rule::check_row().
void check_responses(const std::string& path);

/// Scores each row of a file of rows by its `response`, with its `prompt` or without one. The row of a
/// sample is the whole object. Finishes the rule. Returns null if `stop` ended the wait for a program. Throws
/// FileError with file and line for a line that is not an object, has no string `response`, or does not pass
/// Rule::check_row(), and RunStopped as Rule::score() does.
std::optional<std::vector<Score>> score_file(Rule& rule, const std::string& path,
                                             const std::stop_token& stop = {});

}  // namespace mantissa::reward
