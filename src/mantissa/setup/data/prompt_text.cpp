#include "mantissa/setup/data/prompt_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/known_ids.h"

namespace mantissa::data {
namespace {

constexpr std::string_view kThink = "<think>";

/// Returns the conversation up to the beginning of the answer that the row has, as the template renders it in
/// an answer; null if the template rejects or changes it.
std::optional<PromptText> rendered_beginning(const ChatFormat& format, const text::ConversationRow& row,
                                             const std::string& before) {
  const std::string& begun = row.begun;
  nlohmann::ordered_json messages = row.messages;
  messages.push_back({{"role", "assistant"}, {"content", begun}});
  std::string text;
  try {
    text = format.render(messages, false, row.tools).text;
  } catch (const chat::TemplateError&) {  // such as one for a model's end token, without that model
    return std::nullopt;
  }
  const std::size_t at = text.starts_with(before) ? text.find(begun, before.size()) : text.rfind(begun);
  if (at == std::string::npos) return std::nullopt;
  return PromptText{{}, text.substr(0, at + begun.size()), at};
}

/// Returns the text of a prompt under a template, without ids.
PromptText rendered(const ChatFormat& format, const text::ConversationRow& row, const std::string& where) {
  PromptText out;
  const bool begun = !row.begun.empty();
  try {
    const std::string before = format.render(row.messages, false, row.tools).text;
    if (begun) {
      if (const std::optional<PromptText> found = rendered_beginning(format, row, before)) return *found;
    }
    out.text = format.render(row.messages, true, row.tools).text;
    // What the template adds for the answer: the header of a turn, and for some models the answer's
    // beginning.
    const std::size_t added = out.text.starts_with(before) ? before.size() : out.text.size();
    out.answer = std::min(out.text.find(kThink, added), out.text.size());
  } catch (const chat::TemplateError&) {
    format.rethrow_at(where);
  }
  if (begun && !out.begun().starts_with(row.begun)) out.text += row.begun;
  return out;
}

/// Returns the text of a prompt as it is, without ids.
PromptText plain(const text::ConversationRow& row, const std::string& where) {
  require_texts(row, where);
  PromptText out{{}, row.texts->first, row.texts->first.size()};
  const std::string_view text = out.text;
  const std::string_view begun = row.begun;
  const std::string_view end = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  if (!begun.empty() && text.ends_with(begun)) {
    out.answer -= begun.size();
  } else if (end.ends_with(kThink)) {
    out.answer = end.size() - kThink.size();
  }
  return out;
}

}  // namespace

PromptText prompt_text(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format,
                       const text::ConversationRow& row, std::int64_t vocabulary, const std::string& where) {
  PromptText out = format != nullptr ? rendered(*format, row, where) : plain(row, where);
  out.ids = format != nullptr ? tokenizer.encode(out.text) : begun_ids(tokenizer, out.text).ids;
  if (out.ids.empty()) throw FileError(fmt::format("{}: the prompt is empty", where));
  text::check_known_ids(out.ids, tokenizer, vocabulary, where);
  return out;
}

BegunIds begun_ids(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text), whole = tokenizer.encode_with_template(text);
  const auto begin = std::ranges::search(whole, ids).begin();
  BegunIds out;
  if (begin != whole.end()) out.ids.assign(whole.begin(), begin);
  out.first = out.ids.size();
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  return out;
}

void require_texts(const text::ConversationRow& row, const std::string& where) {
  if (row.texts) return;
  throw FileError(fmt::format(
      "{}: the row has messages, which need a chat template. Fix: choose one with data.template, or "
      "with --template",
      where));
}

}  // namespace mantissa::data
