// The results of mantissa eval, as text and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mantissa/app/api/evaluate.h"

namespace mantissa::cli {

/// The evaluation under one policy.
struct PolicyResult {
  std::string name;  // as the user wrote it
  std::optional<api::Evaluation> evaluation;
  std::string failure = {};  // the message, if it failed
  int code = 0;              // the exit code of the failure
};

/// The name of the data, for the text.
struct EvaluatedData {
  std::string rows, passages, questions;
};

/// Returns the result under one policy.
std::string evaluation_text(const api::Evaluation& e);
std::string evaluation_json(const api::Evaluation& e);

/// Returns a table of several policies in at most 80 columns, and the changes from the first one. Names of
/// more than 24 characters have their own line.
std::string policies_text(const std::vector<PolicyResult>& results, const EvaluatedData& data);
std::string policies_json(const std::vector<PolicyResult>& results);

}  // namespace mantissa::cli
