// Lines of JSON that gzip or zstd compressed, by the first bytes; other inputs under all names.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "bundle.h"
#include "check.h"
#include "mantissa/text/rows/byte_reader.h"
#include "mantissa/text/rows/readers.h"
#include "target.h"

using namespace mantissa;

namespace {

void read(const std::string& name, std::string_view bytes) {
  const fuzz::Folder folder({{name, std::string(bytes)}});
  const std::string path = folder.path() / name;
  fuzz::expect_only_errors([&] {
    const std::string all = text::read_all_bytes(path);
    text::ByteReader reader(path);
    std::string parts;
    char buffer[7];
    while (const std::size_t count = reader.read(buffer, sizeof buffer)) parts.append(buffer, count);
    fuzz::require(parts == all, "parts of a stream are the whole");
    fuzz::require(reader.consumed() == reader.file_bytes(), "a stream ends at the end of its file");
  });
  fuzz::expect_only_errors([&] { text::read_rows(path, [](const auto&, const auto&) { return true; }); });
  fuzz::expect_only_errors([&] { text::read_row_documents(path, 1000); });
}

}  // namespace

MANTISSA_FUZZ_TARGET(stream, fuzz::mutate_stream) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (!input.starts_with("\x28\xb5")) read("rows.jsonl.gz", input);
  if (!input.starts_with("\x1f\x8b")) read("rows.jsonl.zst", input);
  if (!input.starts_with("\x28\xb5") && !input.starts_with("\x1f\x8b")) read("rows.txt", input);
  return 0;
}
