#include "mantissa/generate/eval/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/model/network.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/row_reader.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::eval {
namespace {

using nlohmann::json;

constexpr const char* kSpaces = " \t\r\n";

struct Question {
  std::string context;
  std::vector<std::string> choices;
  std::int64_t gold = 0;
};

Question question_of(const json& row, const std::string& where) {
  const auto fault = [&](const char* what) {
    return FileError(fmt::format(
        "{}: {}. Fix: write {{\"query\": \"…\", \"choices\": [\"…\", \"…\"], \"gold\": 0}}", where, what));
  };
  if (!row.is_object()) throw fault("the row is no object");
  Question q;
  const auto query = row.contains("query") ? row.find("query") : row.find("context");
  if (query == row.end() || !query->is_string()) throw fault("no string field \"query\" or \"context\"");
  q.context = query->get<std::string>();
  const auto choices = row.find("choices");
  if (choices == row.end() || !choices->is_array() || choices->size() < 2)
    throw fault("no field \"choices\" with at least two strings");
  for (const json& choice : *choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      throw fault("a choice is not a string with text");
    q.choices.push_back(choice.get<std::string>());
  }
  const auto gold = row.find("gold");
  if (gold == row.end() || !gold->is_number_integer()) throw fault("no whole number \"gold\"");
  q.gold = gold->get<std::int64_t>();
  if (q.gold < 0 || q.gold >= std::ssize(q.choices)) throw fault("\"gold\" is not the index of a choice");
  return q;
}

std::int64_t characters_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// Returns the ids of `context` and `choice` as one passage, whose word is the choice.
Passage passage_of(const Question& q, const std::string& choice, const tokenizer::Tokenizer& tokenizer,
                   std::int64_t most, const std::string& where) {
  const std::size_t end = q.context.find_last_not_of(kSpaces) + 1;  // 0 without text
  const std::string context = q.context.substr(0, end);
  const bool spaced =
      end < q.context.size() || std::string_view(kSpaces).find(choice[0]) != std::string_view::npos;
  const std::string whole = context + q.context.substr(end) + (spaced ? "" : " ") + choice;
  Passage p;
  p.ids = tokens_before(tokenizer, context);
  const std::vector<std::int32_t> known = tokenizer.encode(context), all = tokenizer.encode(whole);
  p.word = p.ids.size() + known.size();
  p.ids.insert(p.ids.end(), all.begin(), all.end());
  if (p.word == 0) {  // as lm-evaluation-harness: the choice follows the token between documents
    p.ids.insert(p.ids.begin(), tokenizer.bos() ? *tokenizer.bos() : tokenizer.separator());
    p.word = 1;
  }
  if (p.word >= p.ids.size())
    throw FileError("{}: the tokenizer {} gives no tokens for a choice. Fix: remove the line", where,
                    tokenizer.name());
  const std::size_t tokens = p.ids.size() - p.word;
  if (tokens > kMostWordTokens) {
    throw FileError("{}: a choice has {}, of at most {}. Fix: shorten it, or remove the line", where,
                    counted(tokens, "token"), kMostWordTokens);
  }
  // The last token is only predicted.
  const std::int64_t over = most > 0 ? std::ssize(p.ids) - 1 - most : 0;
  if (over > 0) {
    const std::size_t cut = std::min(static_cast<std::size_t>(over), p.word - 1);
    p.ids.erase(p.ids.begin(), p.ids.begin() + static_cast<std::ptrdiff_t>(cut));
    p.word -= cut;
  }
  return p;
}

template <class Value>
std::int64_t first_largest(std::size_t count, const Value& value) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i) best = value(i) > value(best) ? i : best;
  return static_cast<std::int64_t>(best);
}

double share_of(const std::vector<ChoiceAnswer>& answers, std::int64_t ChoiceAnswer::*chosen) {
  if (answers.empty()) return 0;
  const auto right =
      std::ranges::count_if(answers, [&](const ChoiceAnswer& a) { return a.*chosen == a.gold; });
  return static_cast<double>(right) / static_cast<double>(answers.size());
}

}  // namespace

double ChoiceScores::accuracy() const {
  return share_of(answers, &ChoiceAnswer::chosen);
}
double ChoiceScores::accuracy_norm() const {
  return share_of(answers, &ChoiceAnswer::chosen_norm);
}
double ChoiceScores::accuracy_bytes() const {
  return share_of(answers, &ChoiceAnswer::chosen_bytes);
}

double share_error(double share, std::size_t count) {
  return count < 2 ? 0 : std::sqrt(share * (1 - share) / static_cast<double>(count - 1));
}

std::vector<ChoiceQuestion> read_choices(const weights::ModelSource& source, const PassageFile& file) {
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = data::tokenizer_of(source);
  if (tokenizer == nullptr) {
    throw ConfigError(
        "--multiple-choice {}: {}. Fix: use a model with its tokenizer, because choices are text", file.name,
        data::why_no_tokenizer(source));
  }
  const std::vector<std::string> names = text::expand_files({file.name});
  if (names.size() > 1)
    throw ConfigError("--multiple-choice {}: matches {} files; give one", file.name, names.size());
  const std::int64_t positions = source.config.max_position_embeddings;
  const bool any_length = positions <= 0 || source.config.network->depends_on_length(positions + 1);
  const std::int64_t limit = file.limit > 0 ? file.limit : std::numeric_limits<std::int64_t>::max();
  std::vector<ChoiceQuestion> questions;
  text::RowReader rows(names.front());
  for (json row; std::ssize(questions) < limit && rows.next(row);) {
    const std::string where = rows.where();
    const Question q = question_of(row, where);
    ChoiceQuestion& question = questions.emplace_back();
    question.gold = q.gold;
    for (const std::string& choice : q.choices) {
      Passage passage = passage_of(q, choice, *tokenizer, any_length ? 0 : positions, where);
      passage.place = rows.place();
      text::check_known_ids(passage.ids, *tokenizer, source.config.vocab_size, where);
      question.passages.push_back(std::move(passage));
      question.characters.push_back(characters_of(choice));
      question.bytes.push_back(std::ssize(choice));
    }
  }
  if (questions.empty()) throw FileError("{}: contains no questions", names.front());
  return questions;
}

ChoiceScores answer_choices(const weights::ModelSource& source, const precision::Policy& policy,
                            std::span<const ChoiceQuestion> questions, const std::string& name,
                            const runtime::Device& device, const std::stop_token& stop,
                            comm::Communicator* ranks) {
  std::vector<Passage> passages;
  for (const ChoiceQuestion& q : questions)
    passages.insert(passages.end(), q.passages.begin(), q.passages.end());
  const LastWords words = predict_last_words(source, policy, passages, name, device, stop, ranks);
  ChoiceScores scores;
  scores.tokens = words.tokens;
  scores.seconds = words.seconds;
  scores.weight_bytes = words.weight_bytes;
  std::size_t next = 0;
  for (const ChoiceQuestion& q : questions) {
    const std::size_t count = q.passages.size();
    if (next + count > words.words.size()) break;
    ChoiceAnswer& a = scores.answers.emplace_back();
    a.gold = q.gold;
    for (std::size_t i = 0; i < count; ++i) a.log_probs.push_back(words.words[next + i].log_prob);
    const auto per = [&](const std::vector<std::int64_t>& lengths) {
      return first_largest(count,
                           [&](std::size_t i) { return a.log_probs[i] / static_cast<double>(lengths[i]); });
    };
    a.chosen = first_largest(count, [&](std::size_t i) { return a.log_probs[i]; });
    a.chosen_norm = per(q.characters);
    a.chosen_bytes = per(q.bytes);
    next += count;
  }
  scores.interrupted = scores.answers.size() < questions.size();
  return scores;
}

}  // namespace mantissa::eval
