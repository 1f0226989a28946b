// A file of pairs of answers as rows of bytes, under ChatML and without a template, truncated on the left.
#include <nlohmann/json.hpp>

#include "check.h"
#include "mantissa/data/pair_rows.h"
#include "mantissa/text/readers.h"
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
    for (const bool scores : {false, true}) {
      data::PairEncoder encoder(rules, scores, chosen, *tokenizer, kVocabulary);
      fuzz::expect_only_errors([&] {
        text::read_json_lines(file.path(), [&](const nlohmann::ordered_json& line, std::int64_t /*number*/) {
          const text::PreferenceRow row = text::read_preference(line, "row");
          const auto pair = encoder.add(row, encoder.encode(row, "row"), "row");
          if (!pair) return true;
          for (const text::Row* one : {&pair->chosen, &pair->rejected}) {
            text::check_row(*one, rules.sequence_length, kVocabulary, "row");
            fuzz::require(one->labels.empty() == scores, "answers have labels, and scored rows none");
          }
          return true;
        });
      });
    }
  }
  return 0;
}
