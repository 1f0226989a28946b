#include "mantissa/data/encoded_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/text/known_ids.h"

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

text::Row plain_row(const text::ConversationRow& row, const tokenizer::Tokenizer& tokenizer,
                    std::int64_t vocabulary, TrainOn train_on, const std::string& where) {
  if (!row.texts) {
    throw FileError(
        fmt::format("{}: data.template = \"none\" requires a prompt and a completion as texts, and this row "
                    "has messages. "
                    "Fix: choose a chat template with data.template",
                    where));
  }
  const std::string text = row.texts->first + row.texts->second;
  const std::vector<std::int32_t> ids = tokenizer.encode(text), whole = tokenizer.encode_with_template(text);
  const bool all = train_on == TrainOn::all;
  const Span part{all ? 0 : row.texts->first.size(), text.size()};
  const std::vector<Span> spans = token_spans(tokenizer, ids, text, std::span(&part, 1));
  // The ids that the tokenizer puts before a text, such as a begin-of-text token.
  const auto begin = std::ranges::search(whole, ids).begin();
  text::Row out;
  if (begin != whole.end()) out.ids.assign(whole.begin(), begin);
  const std::size_t first = out.ids.size();
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.ids.push_back(text::known_separator(tokenizer, vocabulary));
  out.labels.assign(out.ids.size(), text::kIgnoredLabel);
  std::copy(out.ids.begin() + static_cast<std::ptrdiff_t>(first + spans[0].first), out.ids.end(),
            out.labels.begin() + static_cast<std::ptrdiff_t>(first + spans[0].first));
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

void on_all_processors(std::size_t count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> failed(count);
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        body(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    }
  };
  {
    constexpr std::size_t kMostThreads = 16;
    const std::size_t threads =
        std::min({count, kMostThreads, static_cast<std::size_t>(std::thread::hardware_concurrency())});
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& e : failed) {
    if (e != nullptr) std::rethrow_exception(e);
  }
}

}  // namespace mantissa::data
