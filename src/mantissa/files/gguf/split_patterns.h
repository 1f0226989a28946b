// The patterns by which byte-level BPE vocabularies split text before the merges: the names of
// tokenizer.ggml.pre.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace mantissa::gguf {

enum class SplitKind {
  byte_level,  // the pattern of GPT-2, which tokenizers' ByteLevel contains
  digits,      // single digits first, then GPT-2's
  pattern      // a regular expression
};

struct SplitPattern {
  std::string_view name;  // of tokenizer.ggml.pre
  SplitKind kind = SplitKind::byte_level;
  std::string_view pattern = {};
  bool normalizes = false;      // NFC first
  bool ignores_merges = false;  // a piece that is a token is not built from merges
  bool begins_texts = false;    // llama.cpp adds bos unless the file says otherwise
};

/// Returns the split of this name, or null. Several names may stand for one split.
const SplitPattern* find_split(std::string_view name);

/// Returns the entry whose pre_tokenizer() and normalizer are those of a tokenizer.json, or null.
const SplitPattern* split_of(const nlohmann::json& pre_tokenizer, bool normalizes, bool ignores_merges);

/// Returns the pre_tokenizer of a tokenizer.json.
nlohmann::json pre_tokenizer(const SplitPattern& split);

}  // namespace mantissa::gguf
