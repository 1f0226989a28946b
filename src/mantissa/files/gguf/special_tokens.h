// The special tokens of a GGUF file's vocabulary.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {

/// The numbers of tokens with special meanings in tokenizer.ggml.token_type.
enum class TokenKind : std::int64_t { normal = 1, unknown, control, user_defined, unused, byte };

struct SpecialTokens {
  std::optional<std::int64_t> bos, eos, unknown, pad;
  std::optional<std::int64_t> end_of_turn;  // also ends an answer
  bool add_bos = false, add_eos = false;    // to every text
};

/// Reads tokenizer.ggml.*. A missing add_bos_token has llama.cpp's default: true for SentencePiece
/// vocabularies and those of Llama 3. Throws FileError if an id is not in the vocabulary.
SpecialTokens special_tokens(const GgufFile& file);

}  // namespace mantissa::gguf
