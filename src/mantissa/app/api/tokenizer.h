// Conversion of text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {
class Tokenizer;
}

namespace mantissa::api {

/// A tokenizer. Immutable; copies share it, and several threads may use it at once.
class Tokenizer {
 public:
  /// Opens "byte", a tokenizer file (docs/data.md, "Tokenizers"), or a directory that contains one. Throws
  /// ConfigError for any other name, and FileError for a missing or damaged file.
  explicit Tokenizer(const std::string& spec);

  /// Returns the ids of `text`, which may be any bytes, with the ids that a tokenizer.json's post-processor
  /// adds. Special tokens in the text are recognized if the tokenizer is a tokenizer.json.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Returns the text of `ids`, with special tokens. Throws ConfigError with the position of an id that is
  /// not in the vocabulary.
  std::string decode(std::span<const std::int32_t> ids) const;

  std::string name() const;
  /// Returns the number of ids; they are [0, vocabulary()).
  std::int64_t vocabulary() const;
  /// Return the id that begins or ends a text, or null.
  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  /// Returns the spelling of an id, or null.
  std::optional<std::string> token(std::int32_t id) const;
  bool special(std::int32_t id) const;

 private:
  std::shared_ptr<const tokenizer::Tokenizer> impl_;
};

struct TokenizerTraining {
  std::int64_t vocabulary = 32000;
  int threads = 0;         // 0: all processors; changes no bit
  bool overwrite = false;  // replaces the tokenizer in `out`
};
/// The trained tokenizer. The vocabulary is smaller than requested if the text has no more pairs.
struct TrainedTokenizer {
  std::int64_t vocabulary = 0, words = 0, bytes = 0;  // words: different ones
};
/// Trains byte-level BPE with the end token <|endoftext|> on text files, and writes tokenizer.json and
/// tokenizer_config.json into the directory `out`. The merges equal those of the library `tokenizers`. Throws
/// ConfigError if the vocabulary is too small, and FileError for an unreadable file or an existing tokenizer.
TrainedTokenizer train_tokenizer(const std::vector<std::filesystem::path>& files,
                                 const std::filesystem::path& out, const TokenizerTraining& options = {});

/// Returns the bytes of a file of at most 4 GiB. Throws FileError.
std::string read_text(const std::filesystem::path& file);

/// Returns the ids in a text: a JSON array, a JSON object with such an array as "ids", or numbers separated
/// by white space or commas. Throws FileError with `where` and the position of what is not an id.
std::vector<std::int32_t> read_ids(std::string_view text, const std::string& where);

}  // namespace mantissa::api
