#include "mantissa/setup/data/encoded_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/data/prompt_text.h"
#include "mantissa/text/rows/known_ids.h"

namespace mantissa::data {
namespace {

bool is_empty_message(const nlohmann::ordered_json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_string() || !is_blank(content->get<std::string>()))
    return false;
  const auto calls = message.find("tool_calls");
  return calls == message.end() || calls->is_null();
}

}  // namespace

text::Row labelled(AnswerIds answer) {
  text::Row row{.ids = std::move(answer.ids)};
  row.labels.assign(row.ids.size(), text::kIgnoredLabel);
  for (const auto& [begin, end] : answer.answers) {
    for (std::size_t t = begin; t < end; ++t) row.labels[t] = row.ids[t];
  }
  return row;
}

void require_messages(const text::ConversationRow& row, const std::string& where) {
  if (!row.messages.empty()) return;
  throw FileError(
      fmt::format("{}: the row has texts without a prompt, and a chat template needs messages. Fix: "
                  "data.template = \"none\", or a field \"prompt\"",
                  where));
}

text::Row plain_row(const text::ConversationRow& row, const tokenizer::Tokenizer& tokenizer,
                    std::int64_t vocabulary, TrainOn train_on, const std::string& where) {
  require_texts(row, where);
  const std::string text = row.texts->first + row.texts->second;
  const BegunIds begun = begun_ids(tokenizer, text);
  const std::span<const std::int32_t> ids = std::span(begun.ids).subspan(begun.first);
  const Span part{train_on == TrainOn::all ? 0 : row.texts->first.size(), text.size()};
  const std::vector<Span> spans = token_spans(tokenizer, ids, text, std::span(&part, 1));
  text::Row out;
  out.ids = begun.ids;
  out.ids.push_back(text::known_separator(tokenizer, vocabulary));
  out.labels.assign(out.ids.size(), text::kIgnoredLabel);
  const auto answer = static_cast<std::ptrdiff_t>(begun.first + spans[0].first);
  std::copy(out.ids.begin() + answer, out.ids.end(), out.labels.begin() + answer);
  return out;
}

std::int64_t trained_of(const text::Row& row) {
  return std::count_if(row.labels.begin() + 1, row.labels.end(),
                       [](std::int32_t label) { return label != text::kIgnoredLabel; });
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

bool has_empty_message(const nlohmann::ordered_json& messages, std::size_t first, TrainOn train_on) {
  std::vector<bool> empty;
  for (std::size_t i = first; i < messages.size(); ++i) {
    if (is_assistant(messages[i])) empty.push_back(is_empty_message(messages[i]));
  }
  if (train_on == TrainOn::last && !empty.empty()) return empty.back();
  return std::ranges::find(empty, true) != empty.end();
}

void truncate_row(text::Row& row, std::size_t most, const std::string& side) {
  if (side == "right") {
    row.ids.resize(std::min(row.ids.size(), most));
    row.labels.resize(row.ids.size());
    return;
  }
  // What follows the last answer changes nothing that is trained.
  const auto last = std::find_if(row.labels.rbegin(), row.labels.rend(),
                                 [](std::int32_t label) { return label != text::kIgnoredLabel; });
  if (last != row.labels.rend()) row.ids.resize(static_cast<std::size_t>(row.labels.rend() - last));
  row.labels.resize(row.ids.size());
  const auto extra = static_cast<std::ptrdiff_t>(row.ids.size() - std::min(row.ids.size(), most));
  row.ids.erase(row.ids.begin(), row.ids.begin() + extra);
  row.labels.erase(row.labels.begin(), row.labels.begin() + extra);
}

}  // namespace mantissa::data
