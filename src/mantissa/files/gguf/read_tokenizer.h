// The tokenizer files of a Hugging Face directory, made from the vocabulary of a GGUF file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {

struct TokenizerFiles {
  std::vector<std::pair<std::string, std::string>> files;  // names and contents
  std::vector<std::string> notes;                          // for the user
};

/// Returns tokenizer.json, tokenizer_config.json (with the chat template) and generation_config.json.
/// Byte-level BPE needs a known tokenizer.ggml.pre; SentencePiece vocabularies become BPE with byte fallback,
/// with merges in the order of the scores, as in transformers' converter. For other vocabularies there is a
/// note and no tokenizer.json. Throws FileError for lists that contradict each other.
TokenizerFiles read_tokenizer(const GgufFile& file);

}  // namespace mantissa::gguf
