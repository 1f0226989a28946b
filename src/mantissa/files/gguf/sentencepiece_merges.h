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

/// Returns scores that give these merges again: minus the number of merges before those of a token. Tokens
/// whose merges alternate in the list share a score. A token without merges is below all others.
std::vector<float> merge_scores(const std::vector<std::string>& tokens,
                                const std::vector<std::pair<std::string, std::string>>& merges);

}  // namespace mantissa::gguf
