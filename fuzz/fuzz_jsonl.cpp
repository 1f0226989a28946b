// A file of JSON lines, with another document before it.
#include <vector>

#include "check.h"
#include "mantissa/text/rows/readers.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(jsonl, fuzz::mutate_json_lines) {
  constexpr std::int64_t kVocabulary = 256;
  const fuzz::MemoryFile file(data, size);
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  text::Corpus corpus({65});
  fuzz::expect_only_errors([&] {
    text::append_rows_file(file.path(), "auto", *tokenizer, kVocabulary, corpus);
    fuzz::require(corpus.last() == tokenizer->separator(), "a document ends with its separator");
  });
  std::vector<std::int32_t> ids(static_cast<std::size_t>(corpus.tokens()));
  corpus.read(0, ids);
  for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < kVocabulary, "an id is in the vocabulary");
  return 0;
}
