// Rows with answers that are known: questions with choices, passages, questions of puzzles, and responses to
// score.
#include "bundle.h"
#include "check.h"
#include "mantissa/generate/eval/answers.h"
#include "mantissa/generate/eval/choices.h"
#include "mantissa/generate/eval/passages.h"
#include "mantissa/setup/data/stored_rows.h"
#include "mantissa/text/reward/responses.h"
#include "mantissa/text/reward/rules.h"
#include "small_model.h"
#include "target.h"

using namespace mantissa;

namespace {

void check_passage(const eval::Passage& passage) {
  fuzz::require(passage.word >= 1 && passage.word < passage.ids.size(), "a word is within its passage");
  for (const std::int32_t id : passage.ids) fuzz::require(id >= 0 && id < 256, "an id is in the vocabulary");
}

}  // namespace

MANTISSA_FUZZ_TARGET(questions, fuzz::mutate_json_lines) {
  const fuzz::Folder folder({{"rows.jsonl", std::string(reinterpret_cast<const char*>(data), size)},
                             {"rows.txt", std::string(reinterpret_cast<const char*>(data), size)}});
  const std::string rows = folder.path() / "rows.jsonl";
  const weights::ModelSource source{fuzz::small_model(), {}};
  for (const std::int64_t limit : {0, 1}) {
    fuzz::expect_only_errors([&] {
      for (const eval::ChoiceQuestion& question : eval::read_choices(source, {rows, limit})) {
        const auto choices = static_cast<std::int64_t>(question.passages.size());
        fuzz::require(question.gold >= 0 && question.gold < choices, "the right choice is one of them");
        for (const eval::Passage& passage : question.passages) check_passage(passage);
      }
    });
    for (const std::string& file : {rows, (folder.path() / "rows.txt").string()}) {
      fuzz::expect_only_errors([&] {
        for (const eval::Passage& passage : eval::read_passages(source, {file, limit}))
          check_passage(passage);
      });
    }
  }
  fuzz::expect_only_errors([&] { eval::read_questions({rows}, {.count = 4}); });
  for (const bool marked : {false, true})
    fuzz::expect_only_errors([&] { reward::score_file(*reward::kk_rule(marked), rows); });
  fuzz::expect_only_errors([&] { reward::score_file(*reward::exact_rule(), rows); });
  fuzz::expect_only_errors([&] { reward::score_file(*reward::regex_rule("^{answer}$"), rows); });
  fuzz::expect_only_errors([&] {
    data::StoredRows stored = data::StoredRows::of_files({rows});
    for (std::int64_t i = 0; i < stored.size(); ++i)
      fuzz::require(stored.at(i).row.is_object(), "a stored row is an object");
  });
  return 0;
}
