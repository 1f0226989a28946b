// A SentencePiece model, which then encodes and decodes texts.
#include <memory>

#include "mantissa/text/tokenizer/kinds.h"
#include "memory_file.h"
#include "mutate.h"
#include "streams.h"

using namespace mantissa;

MANTISSA_MUTATES_BY(fuzz::mutate_protobuf);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  fuzz::expect_only_errors([&] { tokenizer = tokenizer::read_sentencepiece_tokenizer(file.path()); });
  if (tokenizer) fuzz::use(*tokenizer);
  return 0;
}
