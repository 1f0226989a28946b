#include "mantissa/setup/data/pair_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/encoded_row.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/on_all_processors.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/data/set_of_files.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/row_store.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::data {
namespace {

/// Drops ids of a row that is scored after its last id.
void truncate_scored(text::Row& row, std::size_t most, const std::string& side) {
  if (side == "right") return truncate_row(row, most, side);
  const auto extra = static_cast<std::ptrdiff_t>(row.ids.size() - std::min(row.ids.size(), most));
  row.ids.erase(row.ids.begin(), row.ids.begin() + extra);
  row.labels.erase(row.labels.begin(), row.labels.begin() + extra);
}

/// A pair, and its file and line.
struct PlacedPair {
  text::PreferenceRow row;
  std::string where;
};

/// The used pairs of some files.
struct FilePairs {
  std::vector<text::Row> rows;  // two of each pair
  std::vector<double> margins;
};

/// Encodes pairs on all processors, and appends those that are used.
void append_encoded(PairEncoder& encoder, std::vector<PlacedPair>& some, FilePairs& pairs) {
  std::vector<EncodedPair> encoded(some.size());
  on_all_processors(some.size(),
                    [&](std::size_t i) { encoded[i] = encoder.encode(some[i].row, some[i].where); });
  for (std::size_t i = 0; i < some.size(); ++i) {
    std::optional<EncodedPair> used = encoder.add(some[i].row, std::move(encoded[i]), some[i].where);
    if (!used) continue;
    pairs.rows.push_back(std::move(used->chosen));
    pairs.rows.push_back(std::move(used->rejected));
    pairs.margins.push_back(some[i].row.margin);
  }
  some.clear();
}

/// Reads pairs with the tokenizer and the template of a config.
class PairReader {
 public:
  PairReader(const config::RunConfig& config, const model::ModelConfig& model,
             std::vector<std::string>* notes)
      : files_(file_format(config.data)),
        rules_(sft_rules(config.data)),
        scores_(config.train.objective == "reward"),
        vocabulary_(model.vocab_size),
        tokenizer_(tokenizer_of(config, model)),
        notes_(notes) {
    if (config.data.chat_template != "none") format_.emplace(config, model, *tokenizer_);
  }

  FilePairs read(const std::vector<std::string>& source) {
    constexpr std::size_t kTogether = 1024;
    if (is_generated(source)) {
      throw ConfigError(
          "data.source = \"kk\": generated rows have one answer each, and preference objectives need pairs. Fix: "
          "give files of rows with prompt, chosen and rejected");
    }
    PairEncoder encoder(rules_, scores_, format_ ? &*format_ : nullptr, *tokenizer_, vocabulary_);
    FilePairs pairs;
    std::vector<PlacedPair> waiting;
    for_each_row(
        source,
        [&](const nlohmann::ordered_json& row, std::string where) {
          text::PreferenceRow pair = text::read_preference(row, where);
          waiting.push_back({std::move(pair), std::move(where)});
          if (waiting.size() == kTogether) append_encoded(encoder, waiting, pairs);
          return true;
        },
        files_);
    append_encoded(encoder, waiting, pairs);
    encoder.check();
    if (encoder.counts().pairs == 0) {
      throw ConfigError(fmt::format(
          "{}: no pairs. Fix: write one JSON object on each line, or an array of them, with \"chosen\" and \"rejected\"",
          fmt::join(source, ", ")));
    }
    const std::string told = describe(encoder.counts(), rules_, fmt::format("{}", fmt::join(source, ", ")));
    if (pairs.rows.empty()) throw ConfigError(told + ". Fix: every pair needs two answers");
    if (notes_ != nullptr) notes_->push_back(told);
    return pairs;
  }

 private:
  text::FileFormat files_;
  SftRules rules_;
  bool scores_;
  std::int64_t vocabulary_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::optional<ChatFormat> format_;
  std::vector<std::string>* notes_;
};

}  // namespace

PairEncoder::PairEncoder(const SftRules& rules, bool scores, const ChatFormat* format,
                         const tokenizer::Tokenizer& tokenizer, std::int64_t vocabulary)
    : rules_(rules), scores_(scores), format_(format), tokenizer_(tokenizer), vocabulary_(vocabulary) {}

text::Row PairEncoder::encode(const text::PromptedAnswer& answer, const std::string& where) const {
  const text::ConversationRow& row = answer.row;
  if (format_ == nullptr) return plain_row(row, tokenizer_, vocabulary_, rules_.train_on, where);
  require_messages(row, where);
  // A single answer has a place under every template; earlier ones may be rendered in another way.
  const auto answers =
      static_cast<std::size_t>(std::count_if(row.messages.begin(), row.messages.end(), is_assistant));
  const auto before = static_cast<std::size_t>(std::count_if(
      row.messages.begin(), row.messages.begin() + static_cast<std::ptrdiff_t>(answer.prompt_messages),
      is_assistant));
  const bool one = rules_.train_on == TrainOn::assistant && answers == before + 1;
  if (answers == before && rules_.train_on != TrainOn::all) {  // nothing to train
    AnswerIds ids = answer_ids(*format_, tokenizer_, row.messages, row.tools, TrainOn::all, where);
    ids.answers.clear();
    return labelled(std::move(ids));
  }
  AnswerIds found =
      answer_ids(*format_, tokenizer_, row.messages, row.tools, one ? TrainOn::last : rules_.train_on, where);
  if (!one && rules_.train_on == TrainOn::assistant && before > 0) {
    if (found.answers.size() != answers) {
      throw FileError(fmt::format(
          "{}: the template {} marks {} answers in a conversation of {}, so those of the prompt are "
          "not known. Fix: data.train_on = \"last\"",
          where, format_->name(), found.answers.size(), answers));
    }
    found.answers.erase(found.answers.begin(), found.answers.begin() + static_cast<std::ptrdiff_t>(before));
  }
  return labelled(std::move(found));
}

EncodedPair PairEncoder::encode(const text::PreferenceRow& row, const std::string& where) const {
  EncodedPair pair{encode(row.chosen, where), encode(row.rejected, where)};
  for (const text::Row* one : {&pair.chosen, &pair.rejected})
    text::check_known_ids(one->ids, tokenizer_, vocabulary_, where);
  return pair;
}

bool PairEncoder::has_empty_answer(const text::PromptedAnswer& answer) const {
  if (format_ == nullptr) return answer.row.texts && is_blank(answer.row.texts->second);
  return has_empty_message(answer.row.messages, answer.prompt_messages, rules_.train_on);
}

void PairEncoder::truncate(text::Row& row) {
  const std::size_t before = row.ids.size(), most = static_cast<std::size_t>(most_ids());
  if (before <= most) return;
  const std::int64_t trained = trained_of(row);
  scores_ ? truncate_scored(row, most, rules_.truncate) : truncate_row(row, most, rules_.truncate);
  if (trained_of(row) == 0) return;
  ++counts_.truncated;
  counts_.cut += trained_of(row) < trained ? 1 : 0;
  counts_.dropped += static_cast<std::int64_t>(before - row.ids.size());
}

std::optional<EncodedPair> PairEncoder::add(const text::PreferenceRow& row, EncodedPair pair,
                                            const std::string& where) {
  ++counts_.pairs;
  if (rules_.empty_answers != "train" && (has_empty_answer(row.chosen) || has_empty_answer(row.rejected))) {
    if (rules_.empty_answers == "refuse")
      throw FileError(fmt::format("{}: an answer is empty, and data.empty_answers = \"refuse\"", where));
    ++counts_.empty;
    return std::nullopt;
  }
  const auto length = static_cast<std::int64_t>(std::max(pair.chosen.ids.size(), pair.rejected.ids.size()));
  const auto trains = [](const text::Row& r) { return r.ids.size() >= 2 && trained_of(r) > 0; };
  const bool before = trains(pair.chosen) && trains(pair.rejected);
  if (before && length > counts_.longest) {
    counts_.longest = length;
    counts_.longest_at = where;
  }
  if (before && length > most_ids()) {
    ++counts_.too_long;
    if (rules_.truncate == "refuse") return std::nullopt;
    if (rules_.truncate == "skip") {
      ++counts_.skipped;
      return std::nullopt;
    }
    truncate(pair.chosen);
    truncate(pair.rejected);
  }
  if (!before || !trains(pair.chosen) || !trains(pair.rejected)) {
    if (rules_.masked_rows == "refuse") {
      throw FileError(fmt::format("{}: a row of the pair has no answer{}, and data.masked_rows = \"refuse\"",
                                  where, before ? " after it is truncated" : ""));
    }
    ++counts_.masked;
    return std::nullopt;
  }
  ++counts_.used;
  counts_.ids += static_cast<std::int64_t>(pair.chosen.ids.size() + pair.rejected.ids.size());
  if (!scores_) return pair;
  for (text::Row* r : {&pair.chosen, &pair.rejected}) {
    r->ids.push_back(r->ids.back());
    r->labels.clear();
  }
  return pair;
}

void PairEncoder::check() const {
  if (rules_.truncate != "refuse" || counts_.too_long == 0) return;
  refuse_long_rows(
      counts_, rules_,
      fmt::format("{} of {} a row longer", counts_.too_long, counted(counts_.pairs, "pair", "has", "have")),
      counts_.longest - (scores_ ? 0 : 1));
}

std::string describe(const PairCounts& c, const SftRules& rules, const std::string& name) {
  return fmt::format("{}: {}, {} used with {}; the longest row has {}{}", name, counted(c.pairs, "pair"),
                     c.used, counted(c.ids, "token"), c.longest,
                     left_out_text(c, rules, "without an answer"));
}

PairSet load_pairs(const config::RunConfig& config, const model::ModelConfig& model,
                   std::vector<std::string>* notes) {
  check_bytes(config, model);
  PairReader reader(config, model, notes);
  std::vector<double> margins, held_out_margins;
  std::set<std::int32_t> last_ids;
  text::Dataset set = set_of_files(config, [&](const std::vector<std::string>& files, bool held_out) {
    FilePairs pairs = reader.read(files);
    std::vector<double>& all = held_out ? held_out_margins : margins;
    all.insert(all.end(), pairs.margins.begin(), pairs.margins.end());
    for (const text::Row& row : pairs.rows) last_ids.insert(row.ids.back());
    return text::paired(std::move(pairs.rows));
  });
  return {std::move(set), std::move(margins), std::move(held_out_margins), std::move(last_ids)};
}

}  // namespace mantissa::data
