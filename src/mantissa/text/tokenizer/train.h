// Training of byte-level BPE.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::tokenizer {

/// Words and how often they occur.
using WordCounts = std::map<std::string, std::int64_t, std::less<>>;

/// Splits `text`, line by line, into words by the pattern of GPT-2, and adds their counts to `counts`. Uses
/// `threads` threads (0: all processors). Bytes that are not UTF-8 count as U+FFFD.
void count_words(std::string_view text, int threads, WordCounts& counts);

/// The tokens by id, as bytes, and the merges in order, as pairs of ids.
struct TrainedBpe {
  std::vector<std::string> tokens;
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;
};

/// Returns the vocabulary of at most `vocabulary` tokens: first `special`, which take part in no merge, then
/// all bytes in the order of their characters (byte_level.h), then merges. Each merge joins the most frequent
/// pair; of equally frequent pairs, that with the smaller ids. Equals BpeTrainer of the library `tokenizers`
/// 0.23. Throws ConfigError if the bytes do not fit `vocabulary`.
TrainedBpe train_bpe(const WordCounts& words, std::int64_t vocabulary,
                     std::span<const std::string> special = {});

/// Returns the tokenizer.json of a trained vocabulary. The first `special` tokens are special.
std::string tokenizer_json(const TrainedBpe& bpe, std::size_t special);

}  // namespace mantissa::tokenizer
