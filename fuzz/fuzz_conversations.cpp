// A file of conversations as rows of bytes.
#include "byte_rows.h"
#include "check.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(conversations, fuzz::mutate_json_lines) {
  const fuzz::ByteRows in(data, size);
  for (const data::ChatFormat* format : in.formats) {
    data::SftEncoder encoder(in.rules, format, *in.tokenizer, in.kVocabulary);
    fuzz::expect_only_errors([&] {
      for (const text::Row& row : data::encode_all(encoder, {in.file.path()}, {})) {
        text::check_row(row, in.rules.sequence_length, in.kVocabulary, "row");
        fuzz::require(row.labels.size() == row.ids.size(), "every id has a label");
        bool trained = false;
        for (std::size_t t = 1; t < row.ids.size(); ++t) trained = trained || row.labels[t] == row.ids[t];
        fuzz::require(trained, "a row has something to train");
      }
    });
  }
  return 0;
}
