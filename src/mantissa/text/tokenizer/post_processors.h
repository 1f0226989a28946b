// Post-processors: the ids that a file adds to those of a text.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/text/tokenizer/json.h"

namespace mantissa::tokenizer {

/// What is added before and after the ids of one text.
class PostProcessor {
 public:
  PostProcessor() = default;
  /// Reads a post-processor of a tokenizer.json. All ids must be below `vocabulary`. Throws FileError.
  PostProcessor(const JsonView& json, std::int64_t vocabulary);

  std::vector<std::int32_t> apply(const std::vector<std::int32_t>& ids) const;

 private:
  struct Piece {
    bool text;  // the ids of the text, or `ids`
    std::vector<std::int32_t> ids;
  };
  void read(const JsonView& json, std::int64_t vocabulary);

  std::vector<Piece> pieces_ = {{true, {}}};
};

}  // namespace mantissa::tokenizer
