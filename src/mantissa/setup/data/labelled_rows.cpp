#include "mantissa/setup/data/labelled_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/on_all_processors.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/data/set_of_files.h"
#include "mantissa/setup/data/sft_rows.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/labelled_row.h"
#include "mantissa/text/rows/row_store.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {
namespace {

SftRules rules_of(const config::DataSection& section) {
  SftRules rules = sft_rules(section);
  rules.train_on = TrainOn::last;
  return rules;
}

/// Reads answers with the tokenizer and the template of a config.
class LabelledReader {
 public:
  LabelledReader(const config::RunConfig& config, const model::ModelConfig& model,
                 std::vector<std::string>* notes)
      : files_(file_format(config.data)),
        rules_(rules_of(config.data)),
        vocabulary_(model.vocab_size),
        tokenizer_(tokenizer_of(config, model)),
        notes_(notes) {
    if (config.data.chat_template != "none") format_.emplace(config, model, *tokenizer_);
  }

  /// Returns the used rows of `source`, and appends their labels to `desirable`.
  std::vector<text::Row> read(const std::vector<std::string>& source, std::vector<bool>& desirable) {
    constexpr std::size_t kTogether = 1024;
    if (is_generated(source)) {
      throw ConfigError(
          "data.source = \"kk\": generated rows have no label, which kto needs. Fix: give files of rows with "
          "prompt, completion and label");
    }
    SftEncoder encoder(rules_, format_ ? &*format_ : nullptr, *tokenizer_, vocabulary_);
    std::vector<text::Row> rows;
    std::vector<Placed> waiting;
    const std::size_t before = desirable.size();
    for_each_row(
        source,
        [&](const nlohmann::ordered_json& row, std::string where) {
          for (text::LabelledRow& answer : text::read_labelled(row, where))
            waiting.push_back({std::move(answer), where});
          if (waiting.size() >= kTogether) append(encoder, waiting, rows, desirable);
          return true;
        },
        files_);
    append(encoder, waiting, rows, desirable);
    encoder.check();
    const std::string names = fmt::format("{}", fmt::join(source, ", "));
    if (encoder.counts().rows == 0) {
      throw ConfigError(fmt::format(
          "{}: no rows. Fix: write one JSON object on each line, or an array of them, with \"prompt\", "
          "\"completion\" and \"label\"",
          names));
    }
    const std::string told = describe(encoder.counts(), rules_, names);
    if (rows.empty()) throw ConfigError(told + ". Fix: the rows need answers");
    if (notes_ == nullptr) return rows;
    const auto good =
        std::count(desirable.begin() + static_cast<std::ptrdiff_t>(before), desirable.end(), true);
    notes_->push_back(fmt::format("{}; {} of the used rows are desirable", told, good));
    return rows;
  }

 private:
  struct Placed {
    text::LabelledRow answer;
    std::string where;
  };

  /// Encodes `waiting` on all processors, and appends the rows that are used.
  static void append(SftEncoder& encoder, std::vector<Placed>& waiting, std::vector<text::Row>& rows,
                     std::vector<bool>& desirable) {
    std::vector<text::Row> encoded(waiting.size());
    on_all_processors(waiting.size(), [&](std::size_t i) {
      encoded[i] = encoder.encode(waiting[i].answer.row, waiting[i].where);
    });
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      std::optional<text::Row> used =
          encoder.add(waiting[i].answer.row, std::move(encoded[i]), waiting[i].where);
      if (!used) continue;
      rows.push_back(std::move(*used));
      desirable.push_back(waiting[i].answer.desirable);
    }
    waiting.clear();
  }

  text::FileFormat files_;
  SftRules rules_;
  std::int64_t vocabulary_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::optional<ChatFormat> format_;
  std::vector<std::string>* notes_;
};

}  // namespace

LabelledSet load_labelled(const config::RunConfig& config, const model::ModelConfig& model,
                          std::vector<std::string>* notes) {
  check_bytes(config, model);
  LabelledReader reader(config, model, notes);
  std::vector<bool> desirable, held_out_desirable;
  text::Dataset set = set_of_files(config, [&](const std::vector<std::string>& files, bool held_out) {
    return text::listed(reader.read(files, held_out ? held_out_desirable : desirable));
  });
  return {std::move(set), std::move(desirable), std::move(held_out_desirable)};
}

}  // namespace mantissa::data
