// RWKV vocabularies in GGUF files: tokens are bytes, escaped as in Python.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::gguf {

/// The usual name of the vocabulary's file in a model directory.
inline constexpr const char* kRwkvVocabulary = "rwkv_vocab_v20230424.txt";

/// The name of RWKV vocabularies in tokenizer.ggml.model, and of llama.cpp's own chat template for them.
inline constexpr const char *kRwkvModel = "rwkv", *kRwkvTemplate = "rwkv-world";

/// Returns a token as GGUF files hold it: "\\n", "\\xff", text.
std::string escaped_token(std::string_view bytes);
/// Returns the bytes of a token of a GGUF file, as llama.cpp reads it, or null if an escape is not complete.
std::optional<std::string> token_bytes(std::string_view escaped);

/// Returns the line of the vocabulary's file for a token: id, Python literal, number of bytes.
std::string vocabulary_line(std::size_t id, std::string_view bytes);

}  // namespace mantissa::gguf
