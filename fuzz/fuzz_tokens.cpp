// A file of raw ids, read in both widths.
#include <vector>

#include "check.h"
#include "mantissa/text/readers.h"
#include "memory_file.h"

using namespace mantissa;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(data, size);
  for (const std::int64_t vocabulary : {std::int64_t{256}, std::int64_t{65535}, std::int64_t{128256}}) {
    std::vector<std::int32_t> ids;
    fuzz::expect_only_errors([&] { text::append_token_file(file.path(), vocabulary, ids); });
    for (const std::int32_t id : ids) fuzz::require(id >= 0 && id < vocabulary, "an id is in the vocabulary");
  }
  return 0;
}
