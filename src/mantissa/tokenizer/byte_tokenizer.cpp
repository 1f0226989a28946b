#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/tokenizer/kinds.h"

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
            fmt::format("token id {} at position {} is not in the byte vocabulary (0 to {}); check that the "
                        "ids come from "
                        "the byte tokenizer",
                        ids[i], i, kEntries - 1));
      }
      text[i] = static_cast<char>(ids[i]);
    }
    return text;
  }

  std::int64_t vocabulary() const override { return kEntries; }
  std::string name() const override { return "byte"; }
  std::int32_t separator() const override { return 0; }

 private:
  static constexpr std::int32_t kEntries = 256;
};

}  // namespace

std::unique_ptr<Tokenizer> byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace mantissa::tokenizer
