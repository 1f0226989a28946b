// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::text {

/// A vocabulary and its rule. Immutable; may be used by several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// The ids of `text`, which may hold any bytes.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// The bytes that `ids` stand for. Throws ConfigError naming an id that is not in the vocabulary, and its
  /// place.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Number of ids; they are [0, vocabulary()).
  virtual std::int64_t vocabulary() const = 0;
  /// How a config names it.
  virtual std::string name() const = 0;
  /// The id that ends a document where documents are joined into one stream.
  virtual std::int32_t separator() const = 0;
};

/// The tokenizer a config names: "byte" (256 entries, id = byte, separator 0). Throws ConfigError for any
/// other.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace mantissa::text
