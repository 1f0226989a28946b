// A file of comma-separated values, read with and without other names of its fields.
#include <nlohmann/json.hpp>

#include "check.h"
#include "mantissa/text/rows/row_reader.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(csv, nullptr) {
  const fuzz::MemoryFile file(data, size);
  text::FileFormat format("csv");
  for (const bool mapped : {false, true}) {
    if (mapped) format.fields = {{"prompt", {"a", "b"}}, {"completion", {"c"}}, {"system", {"d"}}};
    fuzz::expect_only_errors([&] {
      std::size_t fields = 0;
      std::int64_t number = 0, line = 0;
      text::read_rows(
          file.path(),
          [&](const nlohmann::ordered_json& row, const text::FilePlace& place) {
            for (const auto& value : row) fuzz::require(value.is_string(), "a value of CSV is a text");
            fuzz::require(mapped || number == 0 || row.size() == fields, "every row has the same fields");
            fuzz::require(place.row == ++number && place.line >= line, "rows are counted");
            fields = row.size();
            line = place.line;
            if (mapped)
              fuzz::require(row.contains("prompt") && row.contains("completion"), "a mapped field is there");
            return true;
          },
          format);
    });
  }
  return 0;
}
