// A token file, read for vocabularies of both widths.
#include <vector>

#include "check.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/shard_header.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(tokens, fuzz::mutate_tokens) {
  const fuzz::MemoryFile file(data, size);
  if (const auto origin = text::shard_origin(file.path()))
    fuzz::require(origin->separator >= 0 && origin->vocabulary > 0, "a shard's header is consistent");
  for (const std::int64_t vocabulary : {std::int64_t{256}, std::int64_t{65535}, std::int64_t{128256}}) {
    text::Corpus corpus;
    fuzz::expect_only_errors([&] { text::append_token_file(file.path(), vocabulary, corpus); });
    std::vector<std::int32_t> ids(static_cast<std::size_t>(corpus.tokens()));
    corpus.read(0, ids);
    for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < vocabulary, "an id is in the vocabulary");
  }
  return 0;
}
