#include <nlohmann/json.hpp>
#include <string_view>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/byte_level.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::tokenizer {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text(ids.size(), '\0');
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= kEntries) {
        throw ConfigError(
            "token id {} at position {} is not in the byte vocabulary (0 to {}); check that the "
            "ids come from the byte tokenizer",
            ids[i], i, kEntries - 1);
      }
      text[i] = static_cast<char>(ids[i]);
    }
    return text;
  }

  std::int64_t vocabulary() const override { return kEntries; }
  std::string name() const override { return "byte"; }
  std::int32_t separator() const override { return 0; }
  std::optional<std::string> token_of(std::int32_t id) const override {
    return id == separator() ? std::optional(std::string(1, '\0')) : std::nullopt;  // no other has a name
  }

 private:
  static constexpr std::int32_t kEntries = 256;
};

// Each byte is written as its character of byte-level tokenizers, except the separator, which is a special
// token: the library finds it in the text before it splits the rest into bytes.
nlohmann::ordered_json byte_level_json() {
  using Json = nlohmann::ordered_json;
  const std::string separator(1, '\0');
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    const auto character = static_cast<char>(byte);
    vocab[byte == 0 ? separator : to_byte_characters({&character, 1})] = byte;
  }
  const Json added = {{"id", 0},         {"content", separator}, {"single_word", false}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", false},  {"special", true}};
  return byte_level_file(Json::array({added}), false, vocab, Json::array());
}

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

std::string byte_tokenizer_json() {
  return byte_level_json().dump(1) + "\n";
}

bool is_byte_tokenizer(std::string_view json) {
  static const std::string written = byte_tokenizer_json();
  return json == written;
}

}  // namespace mantissa::tokenizer
