// A file of pairs of answers, or of answers with a label, as rows of bytes.
#include <nlohmann/json.hpp>

#include "byte_rows.h"
#include "check.h"
#include "mantissa/setup/data/pair_rows.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/text/rows/labelled_row.h"
#include "mantissa/text/rows/row_reader.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(pairs, fuzz::mutate_json_lines) {
  const fuzz::ByteRows in(data, size);
  for (const data::ChatFormat* format : in.formats) {
    for (const bool scores : {false, true}) {
      data::PairEncoder encoder(in.rules, scores, format, *in.tokenizer, in.kVocabulary);
      fuzz::expect_only_errors([&] {
        text::read_rows(
            in.file.path(), [&](const nlohmann::ordered_json& line, const text::FilePlace& /*place*/) {
              const text::PreferenceRow row = text::read_preference(line, "row");
              const auto pair = encoder.add(row, encoder.encode(row, "row"), "row");
              if (!pair) return true;
              for (const text::Row* one : {&pair->chosen, &pair->rejected}) {
                text::check_row(*one, in.rules.sequence_length, in.kVocabulary, "row");
                fuzz::require(one->labels.empty() == scores, "answers have labels, and scored rows none");
              }
              return true;
            });
      });
    }
    data::SftEncoder encoder(in.rules, format, *in.tokenizer, in.kVocabulary);
    fuzz::expect_only_errors([&] {
      text::read_rows(in.file.path(),
                      [&](const nlohmann::ordered_json& line, const text::FilePlace& /*place*/) {
                        for (const text::LabelledRow& answer : text::read_labelled(line, "row")) {
                          const auto row = encoder.add(answer.row, encoder.encode(answer.row, "row"), "row");
                          if (row) text::check_row(*row, in.rules.sequence_length, in.kVocabulary, "row");
                        }
                        return true;
                      });
    });
  }
  return 0;
}
