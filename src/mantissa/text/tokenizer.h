// Conversion of text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::text {

/// A vocabulary and its tokenization rule. Immutable; safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Returns the ids of `text`, which may contain any bytes.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Returns the bytes of `ids`. Throws ConfigError with the id and its position if an id is not in the
  /// vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Returns the number of ids; they are [0, vocabulary()).
  virtual std::int64_t vocabulary() const = 0;
  /// Returns its name in a config.
  virtual std::string name() const = 0;
  /// Returns the id that ends a document when documents are joined into one stream.
  virtual std::int32_t separator() const = 0;
};

/// Returns the tokenizer with the config name `spec`: "byte" (256 entries, id = byte, separator 0). Throws
/// ConfigError for any other name.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace mantissa::text
