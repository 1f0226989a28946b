#include "mantissa/text/tokenizer/train.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <queue>
#include <unordered_map>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/byte_level.h"

namespace mantissa::tokenizer {
namespace {

using Id = std::int32_t;
using Pair = std::pair<Id, Id>;

struct HashPair {
  std::size_t operator()(const Pair& pair) const {
    const auto both = static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>((both * 0x9E3779B97F4A7C15U) >> 16);
  }
};

struct Word {
  std::vector<Id> ids;
  std::int64_t count;
};

/// A pair to merge, with its count when it was queued, and the words that had it then.
struct Candidate {
  Pair pair;
  std::int64_t count;
  std::vector<std::uint32_t> words;
  /// The most frequent pair is on top; of equally frequent ones, the smallest.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class BpeTraining {
 public:
  BpeTraining(const WordCounts& words, std::size_t vocabulary, std::span<const std::string> special)
      : vocabulary_(vocabulary) {
    for (const std::string& token : special) tokens_.push_back(token);
    const std::array<Id, 256> of_byte = add_bytes();
    if (tokens_.size() > vocabulary_) {
      throw ConfigError(
          "--vocab-size {}: is less than the {} entries for all bytes and special tokens. Fix: give at least "
          "{}",
          vocabulary, tokens_.size(), tokens_.size());
    }
    for (const auto& [text, count] : words) {
      Word word{{}, count};
      for (const char byte : text) word.ids.push_back(of_byte[static_cast<unsigned char>(byte)]);
      words_.push_back(std::move(word));
    }
  }

  TrainedBpe operator()() {
    count_pairs();
    while (tokens_.size() < vocabulary_ && !queue_.empty()) {
      Candidate top = queue_.top();
      queue_.pop();
      const std::int64_t count = pair_counts_[top.pair];
      if (top.count != count) {  // counts fall when neighbours merge
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (count < 1) break;
      merge(top);
    }
    return {std::move(tokens_), merges_in_order()};
  }

 private:
  /// Adds the bytes in the order of their characters.
  std::array<Id, 256> add_bytes() {
    std::array<int, 256> bytes;
    std::iota(bytes.begin(), bytes.end(), 0);
    const auto& characters = byte_characters();
    std::sort(bytes.begin(), bytes.end(), [&](int a, int b) {
      return characters[static_cast<std::size_t>(a)] < characters[static_cast<std::size_t>(b)];
    });
    std::array<Id, 256> ids;
    for (const int byte : bytes) {
      ids[static_cast<std::size_t>(byte)] = static_cast<Id>(tokens_.size());
      id_of_.emplace(std::string(1, static_cast<char>(byte)), static_cast<Id>(tokens_.size()));
      tokens_.emplace_back(1, static_cast<char>(byte));
    }
    return ids;
  }

  void count_pairs() {
    Found found;
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<Id>& ids = words_[w].ids;
      for (std::size_t i = 1; i < ids.size(); ++i) change({ids[i - 1], ids[i]}, words_[w].count, w, found);
    }
    queue(found);
  }

  using Found = std::unordered_map<Pair, std::vector<std::uint32_t>, HashPair>;

  /// Adds to the count of a pair. A new occurrence is kept with its word.
  void change(const Pair& pair, std::int64_t count, std::uint32_t word, Found& found) {
    pair_counts_[pair] += count;
    if (count < 0) return;
    std::vector<std::uint32_t>& words = found[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void queue(Found& found) {
    for (auto& [pair, words] : found) {
      const std::int64_t count = pair_counts_[pair];
      if (count > 0) queue_.push({pair, count, std::move(words)});
    }
  }

  /// Two pairs may spell the same token, which then has one id. The pairs with this id are queued once for
  /// the words of each, as the library `tokenizers` does, so that merges equal its merges.
  void merge(const Candidate& top) {
    const auto [a, b] = top.pair;
    const std::string token = tokens_[static_cast<std::size_t>(a)] + tokens_[static_cast<std::size_t>(b)];
    const auto [place, added] = id_of_.emplace(token, static_cast<Id>(tokens_.size()));
    if (added) tokens_.push_back(token);
    rank_[top.pair] = merges_++;
    Found found;
    for (const std::uint32_t w : top.words) merge_in(w, top.pair, place->second, found);
    queue(found);
  }

  void merge_in(std::uint32_t w, const Pair& pair, Id token, Found& found) {
    std::vector<Id>& ids = words_[w].ids;
    const std::int64_t count = words_[w].count;
    std::size_t out = 0;  // ids[0, out) are done; the word shrinks in place
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != pair.first || i + 1 == ids.size() || ids[i + 1] != pair.second) {
        ids[out++] = ids[i];
        continue;
      }
      if (out > 0) {
        change({ids[out - 1], pair.first}, -count, w, found);
        change({ids[out - 1], token}, count, w, found);
      }
      if (i + 2 < ids.size()) {
        change({pair.second, ids[i + 2]}, -count, w, found);
        change({token, ids[i + 2]}, count, w, found);
      }
      ids[out++] = token;
      ++i;
    }
    ids.resize(out);
  }

  std::vector<Pair> merges_in_order() const {
    std::vector<std::pair<std::int64_t, Pair>> ranked;
    for (const auto& [pair, rank] : rank_) ranked.emplace_back(rank, pair);
    std::sort(ranked.begin(), ranked.end());
    std::vector<Pair> merges;
    for (const auto& [rank, pair] : ranked) merges.push_back(pair);
    return merges;
  }

  std::size_t vocabulary_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, Id> id_of_;  // without special tokens
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t, HashPair> pair_counts_;
  std::priority_queue<Candidate> queue_;
  std::unordered_map<Pair, std::int64_t, HashPair> rank_;  // a pair that was merged twice has its last rank
  std::int64_t merges_ = 0;
};

}  // namespace

TrainedBpe train_bpe(const WordCounts& words, std::int64_t vocabulary, std::span<const std::string> special) {
  return BpeTraining(words, static_cast<std::size_t>(std::max<std::int64_t>(vocabulary, 0)), special)();
}

std::string tokenizer_json(const TrainedBpe& bpe, std::size_t special) {
  using Json = nlohmann::json;
  Json added = Json::array(), vocab = Json::object(), merges = Json::array();
  std::vector<std::string> spelling;
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id) {
    spelling.push_back(id < special ? bpe.tokens[id] : to_byte_characters(bpe.tokens[id]));
    vocab[spelling[id]] = id;
    if (id >= special) continue;
    added.push_back({{"id", id},
                     {"content", spelling[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (const auto& [a, b] : bpe.merges)
    merges.push_back({spelling[static_cast<std::size_t>(a)], spelling[static_cast<std::size_t>(b)]});
  const Json json = byte_level_file(added, true, vocab, merges);
  return json.dump(1) + "\n";
}

}  // namespace mantissa::tokenizer
