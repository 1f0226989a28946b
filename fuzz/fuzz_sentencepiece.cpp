// A SentencePiece model, which then encodes and decodes texts.
#include <memory>

#include "mantissa/text/tokenizer/kinds.h"
#include "memory_file.h"
#include "streams.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(sentencepiece, fuzz::mutate_protobuf) {
  const fuzz::MemoryFile file(data, size);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  fuzz::expect_only_errors([&] { tokenizer = tokenizer::read_sentencepiece_tokenizer(file.path()); });
  if (tokenizer) fuzz::use(*tokenizer);
  return 0;
}
