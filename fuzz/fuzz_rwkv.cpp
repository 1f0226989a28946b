// An RWKV vocabulary: the input itself, and the input after the tokens of all bytes, without which a
// vocabulary is refused.
#include <fmt/format.h>

#include <memory>

#include "mantissa/text/tokenizer/kinds.h"
#include "memory_file.h"
#include "streams.h"
#include "target.h"

using namespace mantissa;

namespace {

void read(std::string_view vocabulary) {
  const fuzz::MemoryFile file(reinterpret_cast<const std::uint8_t*>(vocabulary.data()), vocabulary.size());
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  fuzz::expect_only_errors([&] { tokenizer = tokenizer::read_rwkv_tokenizer(file.path()); });
  if (!tokenizer) return;
  fuzz::use(*tokenizer);
  for (const std::string_view text : {std::string_view("\0a\xFF", 3), vocabulary})
    fuzz::require(tokenizer->decode(tokenizer->encode(text)) == text, "a text comes back");
}

}  // namespace

MANTISSA_FUZZ_TARGET(rwkv, nullptr) {
  static const std::string bytes = [] {
    std::string lines;
    for (int byte = 0; byte < 256; ++byte) lines += fmt::format("{} b'\\x{:02x}' 1\n", byte + 1, byte);
    return lines;
  }();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  read(input);
  read(bytes + std::string(input));
  return 0;
}
