// The tokenizer of a SentencePiece model, by the library sentencepiece.
#include <sentencepiece_processor.h>

#include <exception>
#include <new>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/read_file.h"
#include "mantissa/text/tokenizer/sentencepiece_model.h"

namespace mantissa::tokenizer {
namespace {

[[noreturn]] void refuse(const std::string& name, const char* what, const std::string& why) {
  throw ConfigError(
      "{}: {}: {}. Fix: give a SentencePiece model, such as a model directory's tokenizer.model.", name, what,
      why);
}

/// Calls the library, whose parts throw exceptions of their own for some damaged models. Returns why the call
/// failed, or null.
template <class Call>
std::optional<std::string> fault_of(const Call& call) {
  try {
    const sentencepiece::util::Status status = call();
    return status.ok() ? std::nullopt : std::optional(status.ToString());
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

template <class Call>
void check(const std::string& name, const char* what, const Call& call) {
  if (const auto fault = fault_of(call)) refuse(name, what, *fault);
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) : name_(file.string()) {
    const std::string bytes = read_tokenizer_file(file);
    // The library's reason names a line of its source, so it is left out.
    if (!has_whole_charsmaps(bytes) || fault_of([&] { return processor_.LoadFromSerializedProto(bytes); })) {
      throw FileError(
          "{}: is not a SentencePiece model, or is truncated. Fix: get the file again from its source, or "
          "give another, such as a model directory's tokenizer.model.",
          name_);
    }
    if (vocabulary() < 1) throw ConfigError("{}: has no pieces. Fix: give another file.", name_);
    const std::filesystem::path settings = file.parent_path() / "tokenizer_config.json";
    if (!disk::exists(settings)) return;
    const nlohmann::json json = parse_json(read_tokenizer_file(settings), settings.string());
    if (!json.is_object()) return;
    const auto adds = [&](const char* key) { return json.contains(key) && json[key] == true; };
    begins_ = adds("add_bos_token");
    ends_ = adds("add_eos_token");
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    check(name_, "cannot encode the text", [&] {
      return processor_.Encode({text.data(), text.size()}, &ids);
    });
    return ids;
  }

  std::vector<std::int32_t> encode_with_template(std::string_view text) const override {
    std::vector<std::int32_t> ids = encode(text);
    if (begins_ && bos()) ids.insert(ids.begin(), *bos());
    if (ends_ && eos()) ids.push_back(*eos());
    return ids;
  }

  // The library omits control symbols such as <s>, so the text between them is decoded.
  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    std::vector<int> part;
    const auto flush = [&] {
      std::string decoded;
      if (!part.empty())
        check(name_, "cannot decode the ids", [&] { return processor_.Decode(part, &decoded); });
      text += decoded;
      part.clear();
    };
    for (std::size_t i = 0; i < ids.size(); ++i) {
      check_id(ids[i], i);
      if (!processor_.IsControl(ids[i])) {
        part.push_back(ids[i]);
        continue;
      }
      flush();
      text += processor_.IdToPiece(ids[i]);
    }
    flush();
    return text;
  }

  std::unique_ptr<TextDecoder> text_decoder() const override { return std::make_unique<Text>(*this); }

  // The library decodes a byte outside of a whole character as U+FFFD, and a letter in its place as one byte.
  std::size_t count_bytes(std::span<const std::int32_t> ids) const override {
    const int letter = processor_.PieceToId("<0x41>");
    std::vector<std::int32_t> counted(ids.begin(), ids.end());
    if (processor_.IsByte(letter)) {
      for (std::int32_t& id : counted) id = known(id) && is_beyond_ascii(id) ? letter : id;
    }
    return decode(counted).size();
  }

  std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  std::string name() const override { return name_; }
  std::int32_t separator() const override {
    if (eos()) return *eos();
    throw ConfigError(
        "{} has no token that ends a document. Fix: give a model with an end-of-sentence symbol, or write "
        "the ids to a file and set data.format = \"tokens\".",
        name_);
  }
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    return known(id) && processor_.IdToPiece(id) == token ? std::optional(id) : std::nullopt;
  }
  std::optional<std::string> token_of(std::int32_t id) const override {
    return known(id) ? std::optional(processor_.IdToPiece(id)) : std::nullopt;
  }
  std::optional<std::int32_t> bos() const override { return optional(processor_.bos_id()); }
  std::optional<std::int32_t> eos() const override { return optional(processor_.eos_id()); }
  bool special(std::int32_t id) const override { return known(id) && processor_.IsControl(id); }

 private:
  /// Decodes the last pieces anew with the pieces before them, as far as these change the result: the library
  /// drops a space before the first text, and joins byte pieces in a row.
  class Text final : public TextDecoder {
   public:
    explicit Text(const SentencePieceTokenizer& tokenizer) : tokenizer_(tokenizer) {}
    void push(std::int32_t id, std::string& text) override {
      tokenizer_.check_id(id, count_++);
      if (tokenizer_.processor_.IsControl(id)) {
        finish(text);
        text += tokenizer_.processor_.IdToPiece(id);
        return;
      }
      part_.push_back(id);
      if (!tokenizer_.is_byte(id)) pass(text);
    }
    void finish(std::string& text) override {
      pass(text);
      part_.clear();
      known_ = 0;
    }

   private:
    /// Appends the text of the pieces from `known_` on.
    void pass(std::string& text) {
      if (part_.size() == known_) return;
      const std::size_t before = tokenizer_.decode(std::span(part_).first(known_)).size();
      text.append(tokenizer_.decode(part_), before);
      // Pieces without text leave the next one at the beginning.
      const std::span<const std::int32_t> last = std::span(part_).subspan(known_);
      if (!tokenizer_.decode(last).empty())
        part_.erase(part_.begin(), part_.begin() + static_cast<std::ptrdiff_t>(known_));
      known_ = part_.size();
    }

    const SentencePieceTokenizer& tokenizer_;
    std::vector<std::int32_t> part_;  // without control symbols
    std::size_t known_ = 0, count_ = 0;
  };

  static std::optional<std::int32_t> optional(int id) { return id < 0 ? std::nullopt : std::optional(id); }
  /// True if decode() takes the piece for a byte: the library looks its spelling up, which another piece may
  /// have too.
  bool is_byte(std::int32_t id) const {
    return processor_.IsByte(processor_.PieceToId(processor_.IdToPiece(id)));
  }
  // True for the pieces <0x80> to <0xFF>.
  bool is_beyond_ascii(std::int32_t id) const {
    constexpr std::size_t kFirstDigit = 3;
    return is_byte(id) && processor_.IdToPiece(id).at(kFirstDigit) >= '8';
  }
  void check_id(std::int32_t id, std::size_t position) const {
    if (known(id)) return;
    throw ConfigError(
        "token id {} at position {} is not in the vocabulary of {} (ids 0 to {}). Fix: check that the ids "
        "come from this tokenizer.",
        id, position, name_, vocabulary() - 1);
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  bool begins_ = false, ends_ = false;  // what tokenizer_config.json says
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece_tokenizer(const std::filesystem::path& file) {
  return std::make_unique<SentencePieceTokenizer>(file);
}

}  // namespace mantissa::tokenizer
