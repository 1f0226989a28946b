// The text of ids that arrive one by one, up to a stop string.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/tokenizer/stop_text.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::tokenizer {

enum class SpecialTokens { kept, left_out };

/// A stop string may begin and end within tokens. Ids that the tokenizer does not know have no text.
class GrowingText {
 public:
  /// Throws ConfigError for an empty stop string. `tokenizer` must outlive the object.
  GrowingText(const Tokenizer& tokenizer, std::vector<std::string> stops, SpecialTokens special);

  /// Appends `id` and returns the text that is certain: complete characters that do not begin a stop string.
  /// After a stop string, returns nothing more.
  std::string push(std::int32_t id);
  /// Appends the last ids and returns all remaining text. No id may follow.
  std::string finish(std::span<const std::int32_t> ids = {});
  /// True after a stop string.
  bool stopped() const { return stop_.stopped(); }
  /// Returns the stop string, or "" before one.
  const std::string& found() const { return stop_.found(); }

 private:
  const Tokenizer* tokenizer_;
  SpecialTokens special_;
  TextStream stream_;
  StopText stop_;
};

}  // namespace mantissa::tokenizer
