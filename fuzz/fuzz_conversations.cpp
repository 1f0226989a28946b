// A file of conversations as rows of bytes under ChatML, truncated on the left.
#include "check.h"
#include "mantissa/data/sft_rows.h"
#include "memory_file.h"

using namespace mantissa;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kVocabulary = 256;
  const fuzz::MemoryFile file(data, size);
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  const data::ChatFormat format(weights::ModelSource{}, "chatml", "--template");
  data::SftRules rules;
  rules.sequence_length = 100;
  rules.truncate = "left";
  rules.empty_answers = "train";
  for (const data::ChatFormat* chosen : {&format, static_cast<const data::ChatFormat*>(nullptr)}) {
    data::SftEncoder encoder(rules, chosen, *tokenizer, kVocabulary);
    fuzz::expect_only_errors([&] {
      for (const text::Row& row : data::encode_all(encoder, {file.path()}, {})) {
        text::check_row(row, rules.sequence_length, kVocabulary, "row");
        fuzz::require(row.labels.size() == row.ids.size(), "every id has a label");
        bool trained = false;
        for (std::size_t t = 1; t < row.ids.size(); ++t) trained = trained || row.labels[t] == row.ids[t];
        fuzz::require(trained, "a row has something to train");
      }
    });
  }
  return 0;
}
