// The tokenizer of a SentencePiece model, by the library sentencepiece.
#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include "mantissa/base/error.h"
#include "mantissa/tokenizer/json.h"
#include "mantissa/tokenizer/kinds.h"
#include "mantissa/tokenizer/read_file.h"

namespace mantissa::tokenizer {
namespace {

void check(const sentencepiece::util::Status& status, const std::string& name, const char* what) {
  if (status.ok()) return;
  throw ConfigError(
      fmt::format("{}: {}: {}. Fix: give a SentencePiece model, such as a model directory's "
                  "tokenizer.model.",
                  name, what, status.ToString()));
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) : name_(file.string()) {
    check(processor_.LoadFromSerializedProto(read_tokenizer_file(file)), name_, "cannot be loaded");
    if (vocabulary() < 1) throw ConfigError(fmt::format("{}: has no pieces. Fix: give another file.", name_));
    const std::filesystem::path settings = file.parent_path() / "tokenizer_config.json";
    std::error_code error;
    if (!std::filesystem::exists(settings, error)) return;
    const nlohmann::json json = parse_json(read_tokenizer_file(settings), settings.string());
    if (!json.is_object()) return;
    const auto adds = [&](const char* key) { return json.contains(key) && json[key] == true; };
    begins_ = adds("add_bos_token");
    ends_ = adds("add_eos_token");
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<int> ids;
    check(processor_.Encode({text.data(), text.size()}, &ids), name_, "cannot encode the text");
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
      if (!part.empty()) check(processor_.Decode(part, &decoded), name_, "cannot decode the ids");
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
    throw ConfigError(fmt::format(
        "{} has no token that ends a document. Fix: give a model with an end-of-sentence symbol, or write "
        "the ids to a file and set data.format = \"tokens\".",
        name_));
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
  static std::optional<std::int32_t> optional(int id) { return id < 0 ? std::nullopt : std::optional(id); }
  bool known(std::int32_t id) const { return id >= 0 && id < vocabulary(); }
  // True for the pieces <0x80> to <0xFF>.
  bool is_beyond_ascii(std::int32_t id) const {
    constexpr std::size_t kFirstDigit = 3;
    return processor_.IsByte(id) && processor_.IdToPiece(id).at(kFirstDigit) >= '8';
  }
  void check_id(std::int32_t id, std::size_t position) const {
    if (known(id)) return;
    throw ConfigError(fmt::format(
        "token id {} at position {} is not in the vocabulary of {} (ids 0 to {}). Fix: check that the ids "
        "come from this tokenizer.",
        id, position, name_, vocabulary() - 1));
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
