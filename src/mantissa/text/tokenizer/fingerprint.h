// Tells vocabularies apart by a number.
#pragma once

#include <cstdint>

#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::tokenizer {

/// Returns a hash of the spellings of all ids and of the separator, never 0: equal for tokenizers whose ids
/// stand for the same texts, in whichever files they are.
std::uint64_t fingerprint(const Tokenizer& tokenizer);

}  // namespace mantissa::tokenizer
