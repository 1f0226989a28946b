// The merges of a SentencePiece BPE vocabulary, which stores scores instead.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mantissa::gguf {

/// Returns every pair of tokens that together are a token, in the order in which they merge: by the score of
/// the result, the highest first; equal scores by the lengths of the left and right parts, the longest first,
/// then by the order of the results and of the parts in the vocabulary. That is the order of transformers'
/// converters. Lengths are in characters.
std::vector<std::pair<std::string, std::string>> sentencepiece_merges(const std::vector<std::string>& tokens,
                                                                      const std::vector<double>& scores);

}  // namespace mantissa::gguf
