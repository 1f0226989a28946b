// A tokenizer.json, which then encodes and decodes texts.
#include <memory>
#include <string_view>

#include "check.h"
#include "mantissa/tokenizer/kinds.h"
#include "memory_file.h"

using namespace mantissa;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  fuzz::expect_only_errors([&] { tokenizer = tokenizer::read_hf_tokenizer(file.path()); });
  if (!tokenizer) return 0;
  for (const std::string_view text :
       {"", "Hello  world's 123\r\n", "e\xCC\x81 \xF0\x9F\x91\x8D\xE2\x96\x81<s>", "\xFF\xC0 a"}) {
    fuzz::expect_only_errors([&] {
      const std::vector<std::int32_t> ids = tokenizer->encode_with_template(text);
      for (const std::int32_t id : ids)
        fuzz::require(id >= 0 && id < tokenizer->vocabulary(), "an id is in the vocabulary");
      tokenizer->decode(ids);
    });
  }
  return 0;
}
