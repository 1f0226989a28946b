// What a conversion did: one value, printed as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/convert/convert.h"

namespace mantissa::convert {

/// Two models over the same tokens.
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
  std::optional<Effect> effect;              // where the models were compared
  std::vector<std::string> notes, warnings;  // a warning: which values became inf or nan
  double seconds = 0;                        // of the conversion
  bool interrupted = false;  // by a stop: nothing was written, or what was written is not compared
};

/// "nearest"
const char* rounding_name(Rounding rounding);

/// A table of the tensors with their errors, the totals, the notes and the effect; without an end of line.
std::string to_text(const Report& report);
/// The same for programs (docs/cli.md, "convert").
std::string to_json(const Report& report);

}  // namespace mantissa::convert
