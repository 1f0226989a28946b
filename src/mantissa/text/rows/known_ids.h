// A tokenizer may have more entries than the model. Only texts in which such an entry occurs cannot be used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Throws ConfigError if an id of a text is not below `vocabulary`, the entries of the model. The message
/// begins with `where` and names the token, its id, and the text around it.
void check_known_ids(std::span<const std::int32_t> ids, const tokenizer::Tokenizer& tokenizer,
                     std::int64_t vocabulary, const std::string& where);

/// Does the same for the ids of the file `path` with this `text`, and names the line.
void check_known_ids_of_file(std::span<const std::int32_t> ids, std::string_view text,
                             const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary,
                             const std::string& path);

/// Returns the id that separates documents. Throws ConfigError if it is not below `vocabulary`.
std::int32_t known_separator(const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary);

}  // namespace mantissa::text
