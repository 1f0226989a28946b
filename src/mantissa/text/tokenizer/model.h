// The models of tokenizer.json: from words to ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/word_cache.h"

namespace mantissa::tokenizer {

/// The largest number of ids: far above any vocabulary, so that a damaged file cannot ask for much memory.
inline constexpr std::int64_t kMostIds = 1 << 24;

/// What one thread needs to encode words, to be used with one model.
struct ModelMemory {
  struct Symbol {
    std::int32_t id;
    std::int32_t previous, next;  // positions, -1: none
    bool alive;
  };
  WordCache cache;
  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> queue;
  std::vector<std::int32_t> ids, ranks;
  struct PathNode {
    double score;
    std::int64_t from;
    std::int32_t id;
  };
  std::vector<PathNode> path;
};

class Model {
 public:
  virtual ~Model() = default;
  /// Appends the ids of `word`, which is not empty.
  virtual void encode(std::string_view word, ModelMemory& memory, std::vector<std::int32_t>& ids) const = 0;
  virtual std::optional<std::int32_t> id_of(std::string_view token) const = 0;
  /// Returns the number of different tokens.
  virtual std::size_t size() const = 0;
  /// Returns the tokens by id; an id without token is null.
  virtual const std::vector<std::optional<std::string>>& tokens() const = 0;
  /// Prepares for words that are bytes instead of characters of byte_level.h. Returns false if it cannot.
  virtual bool take_bytes() { return false; }
};

std::unique_ptr<Model> read_model(const JsonView& json);
std::unique_ptr<Model> read_bpe(const JsonView& json);
std::unique_ptr<Model> read_unigram(const JsonView& json);
std::unique_ptr<Model> read_word_piece(const JsonView& json);
std::unique_ptr<Model> read_word_level(const JsonView& json);

/// A vocabulary in the form of most models: an object of tokens and their ids.
struct Vocabulary {
  StringMap ids;
  std::vector<std::optional<std::string>> tokens;

  static Vocabulary read(const JsonView& json);
};

/// Returns the ids of "<0x00>" to "<0xFF>", -1 for those that are absent.
std::vector<std::int32_t> byte_tokens(const StringMap& ids);

}  // namespace mantissa::tokenizer
