// Conversion of text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {

/// Decodes ids one after the other.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  /// Appends the text that no later id changes, in complete characters if it is UTF-8. Throws ConfigError if
  /// the id is not in the vocabulary.
  virtual void push(std::int32_t id, std::string& text) = 0;
  /// Appends the rest.
  virtual void finish(std::string& text) = 0;
};

/// A vocabulary and its tokenization rule. Immutable; safe to use from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Returns the ids of `text`, which may contain any bytes, without the ids that a template adds. Special
  /// tokens in the text are recognized if the tokenizer's file says so.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  /// Returns the ids of `text` with the ids that the file's post-processor adds, such as a begin-of-text
  /// token.
  virtual std::vector<std::int32_t> encode_with_template(std::string_view text) const { return encode(text); }
  /// Returns the bytes of `ids`, including those of special tokens. Throws ConfigError with the id and its
  /// position if an id is not in the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Returns a decoder whose parts, joined, are the result of decode(). The tokenizer must outlive it. The
  /// default is for tokenizers whose text is that of each id by itself.
  virtual std::unique_ptr<TextDecoder> text_decoder() const;
  /// Returns the number of bytes of decode(ids), in which a byte that is not part of a whole character counts
  /// as one, not as the three of U+FFFD.
  virtual std::size_t count_bytes(std::span<const std::int32_t> ids) const { return decode(ids).size(); }
  /// Returns the number of ids; they are [0, vocabulary()).
  virtual std::int64_t vocabulary() const = 0;
  /// True if decode() accepts the id: a vocabulary may have gaps, and a model more entries than its
  /// tokenizer.
  virtual bool known(std::int32_t id) const { return id >= 0 && id < vocabulary(); }
  /// Returns its name in a config.
  virtual std::string name() const = 0;
  /// Returns the id that ends a document when documents are joined into one stream. Throws ConfigError if the
  /// tokenizer has none.
  virtual std::int32_t separator() const = 0;
  /// Returns the id of a token by its spelling in the file, or null.
  virtual std::optional<std::int32_t> id_of(std::string_view token) const;
  /// Returns the spelling of an id in the file, or null if no token has this id.
  virtual std::optional<std::string> token_of(std::int32_t id) const;
  /// Returns the id that begins a text, or null.
  virtual std::optional<std::int32_t> bos() const { return std::nullopt; }
  /// Returns the id that ends a text, or null.
  virtual std::optional<std::int32_t> eos() const { return std::nullopt; }
  /// True for special tokens, which mark the structure of a text.
  virtual bool special(std::int32_t) const { return false; }
};

/// Decodes a growing list of ids. The parts returned by push and finish are, joined, the text of all ids, and
/// each part is complete UTF-8 if the text is.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : decoder_(tokenizer.text_decoder()) {}
  /// Returns the text that `id` completes; empty while a character is incomplete.
  std::string push(std::int32_t id) {
    std::string text;
    decoder_->push(id, text);
    return text;
  }
  /// Returns what push has held back. No id may follow.
  std::string finish() {
    std::string text;
    decoder_->finish(text);
    return text;
  }

 private:
  std::unique_ptr<TextDecoder> decoder_;
};

/// Returns the number of bytes that the ids from `first` on add to the text of those before. Special tokens
/// add none, and the text after one begins anew, as documents do. Characters may begin before `first` and end
/// after the last id: the bytes of consecutive parts of a stream add up to those of the stream.
std::int64_t added_bytes(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::size_t first);

/// Returns the ids of each text, computed by `threads` threads (0: all processors).
std::vector<std::vector<std::int32_t>> encode_batch(const Tokenizer& tokenizer,
                                                    std::span<const std::string_view> texts, int threads = 0);

/// Returns the tokenizer that `spec` names: "byte" (256 entries, id = byte, separator 0), a file of a kind in
/// kinds.h, or a directory with such a file. Throws ConfigError for any other name, and FileError if the file
/// is missing or damaged.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& spec);

}  // namespace mantissa::tokenizer
