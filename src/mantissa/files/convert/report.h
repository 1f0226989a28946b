// The report of a conversion: one value, printed as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/files/convert/convert.h"

namespace mantissa::convert {

/// Compares two models over the same tokens.
struct Effect {
  std::int64_t tokens = 0;
  double loss = 0, converted_loss = 0;  // nats per token
  double kl = 0;      // mean over positions of Σ p·(log p − log q), p the original's distribution; nats
  double max_kl = 0;  // at one position
};

struct Report {
  std::filesystem::path in, out;
  Change change;
  Result result;
  ErrorStats total;                          // of all tensors
  std::optional<Effect> effect;              // if the models were compared
  std::vector<std::string> notes, warnings;  // warnings: the values that became inf or NaN
  double seconds = 0;                        // of the conversion
  bool interrupted = false;  // by a stop request: nothing was written, or the models were not compared
};

/// Returns for example "nearest".
const char* rounding_name(Rounding rounding);

/// Returns a table of the tensors with errors, a line for the others of each dtype, the totals, the notes and
/// the effect, without a final newline.
std::string to_text(const Report& report);
/// Returns the report as JSON (docs/cli/convert.md).
std::string to_json(const Report& report);

}  // namespace mantissa::convert
