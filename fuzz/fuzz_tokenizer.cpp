// A tokenizer.json, which then encodes and decodes texts.
#include <memory>

#include "mantissa/text/tokenizer/kinds.h"
#include "memory_file.h"
#include "streams.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(tokenizer, fuzz::mutate_json) {
  const fuzz::MemoryFile file(data, size);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  fuzz::expect_only_errors([&] { tokenizer = tokenizer::read_hf_tokenizer(file.path()); });
  if (tokenizer) fuzz::use(*tokenizer);
  return 0;
}
