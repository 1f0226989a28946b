// A pair of Megatron: the size of the index as u32, the index, and the ids.
#include <vector>

#include "check.h"
#include "mantissa/text/rows/corpus.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(binidx, fuzz::mutate_binidx) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto length = fuzz::take<std::uint32_t>(input);
  if (!length || *length > input.size()) return 0;
  const std::uint8_t* const index = data + sizeof(std::uint32_t);
  const fuzz::MemoryFile idx(index, *length), bin(index + *length, input.size() - *length);
  for (const std::int64_t vocabulary : {std::int64_t{256}, std::int64_t{65536}, std::int64_t{2147483647}}) {
    fuzz::expect_only_errors([&] {
      const text::TokenFile file(text::BinidxPair{idx.path(), bin.path()}, vocabulary);
      text::Corpus corpus;
      corpus.append(file);
      corpus.split_token_files(std::nullopt);
      std::int64_t sum = 0;
      for (const std::int64_t document : corpus.document_lengths()) sum += document;
      fuzz::require(sum == file.size() && sum == corpus.tokens(), "documents make up the stream");
      std::vector<std::int32_t> ids(static_cast<std::size_t>(corpus.tokens()));
      corpus.read(0, ids);
      for (const std::int32_t id : ids)
        fuzz::require(id >= 0 && id < vocabulary, "an id is in the vocabulary");
    });
  }
  return 0;
}
