#include "mantissa/setup/data/answers.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::data {
namespace {

using Messages = nlohmann::ordered_json;

/// An answer in the text. `closed`: it ends at or before `bytes.second`; otherwise at the first end of a
/// turn.
struct Answer {
  Span bytes;
  bool closed = true;
  bool exact = true;  // its end is that of the turn
};

std::size_t common_length(std::string_view a, std::string_view b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

/// Returns the text of a message, or "" if it has none.
std::string content_of(const Messages& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : "";
}

Messages first_messages(const Messages& messages, std::size_t count) {
  Messages first = Messages::array();
  for (std::size_t i = 0; i < count; ++i) first.push_back(messages[i]);
  return first;
}

/// Finds the answers of a template without generation blocks.
class PrefixAnswers {
 public:
  PrefixAnswers(const ChatFormat& format, const Messages& messages, const Messages& tools,
                std::string_view text, const std::string& where)
      : format_(format), messages_(messages), tools_(tools), text_(text), where_(where) {}

  /// Returns the answer in message `i`.
  Answer answer(std::size_t i) const {
    const std::size_t begin = begin_of(i);
    const std::string with = render(i + 1, false);
    if (with.size() > begin && text_.starts_with(with)) return {{begin, with.size()}, true, false};
    return {{begin, text_.size()}, false, false};
  }

 private:
  std::string render(std::size_t count, bool prompt) const {
    if (count == 0 && !prompt) return "";
    return format_.render(first_messages(messages_, count), prompt, tools_).text;
  }

  /// Returns the byte at which the answer in message `i` begins. The prompt's end may begin the answer too,
  /// such as with <think>: it counts as far as the answer begins with it.
  std::size_t begin_of(std::size_t i) const {
    if (i == 0) return first_begin();
    const std::string before = render(i, false), prompt = render(i, true);
    const std::size_t begin = common_length(prompt, text_);
    if (text_.starts_with(before) && begin >= before.size() && begin > 0) return begin;
    throw FileError(
        "{}: the template {} renders the messages before messages[{}] in another way once later ones follow, "
        "so the answer has no known place. Fix: data.train_on = \"last\", or a template with {{% generation "
        "%}} blocks in data.template",
        where_, format_.name(), i);
  }

  /// begin_of(0): no message is before the answer. The template may write its own text there, such as a
  /// default system message, which it leaves out of a prompt without messages. So the answer begins after the
  /// first place in the conversation of this message alone that has the whole prompt.
  std::size_t first_begin() const {
    const std::string prompt = render(0, true), alone = render(1, false);
    const std::size_t at = prompt.empty() ? std::string::npos : alone.find(prompt);
    if (at != std::string::npos && text_.starts_with(std::string_view(alone).substr(0, at + prompt.size())))
      return at + prompt.size();
    const std::size_t begin = common_length(prompt, text_);
    const std::string content = content_of(messages_[0]);
    const std::string_view answer = trimmed(content);
    if (begin > 0 && !answer.empty() && trimmed(text_.substr(begin)).starts_with(answer)) return begin;
    throw FileError(
        "{}: the conversation begins with an answer, and the template {} begins it in another way "
        "than a prompt without messages, so the answer has no known place. Fix: begin with a "
        "message of the user, or use a template with {{% generation %}} blocks in data.template",
        where_, format_.name());
  }

  const ChatFormat& format_;
  const Messages &messages_, &tools_;
  std::string_view text_;
  const std::string& where_;
};

/// Returns the answers to train, in order.
std::vector<Answer> answers_of(const ChatFormat& format, const Messages& messages, const Messages& tools,
                               const chat::Rendered& rendered, TrainOn train_on, const std::string& where) {
  if (train_on == TrainOn::all) return {{{0, rendered.text.size()}}};
  std::vector<std::size_t> assistants;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (is_assistant(messages[i])) assistants.push_back(i);
  }
  if (assistants.empty()) return {};
  if (train_on == TrainOn::last) assistants = {assistants.back()};
  std::vector<Answer> answers;
  if (rendered.generations.empty() || rendered.lost_generation) {
    const PrefixAnswers prefixes(format, messages, tools, rendered.text, where);
    for (const std::size_t i : assistants) answers.push_back(prefixes.answer(i));
    // An answer without a known end ends before the next one begins.
    for (std::size_t i = 0; i + 1 < answers.size(); ++i)
      answers[i].bytes.second = std::min(answers[i].bytes.second, answers[i + 1].bytes.first);
    return answers;
  }
  std::size_t from = 0;
  if (train_on == TrainOn::last) {
    // A message may have several blocks: those after the messages before it, if these stay the same.
    const std::string before = format.render(first_messages(messages, assistants.back()), false, tools).text;
    from = rendered.text.starts_with(before) ? before.size() : rendered.generations.back().first;
  }
  for (const Span& bytes : rendered.generations) {
    if (bytes.first >= from && bytes.second > bytes.first) answers.push_back({bytes});
  }
  return answers;
}

/// Moves the end of an answer to the end of its turn: after the last special token of a closed answer, or the
/// first of another one.
void end_turn(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids, const Answer& answer,
              Span& span) {
  const auto special = [&](std::size_t t) { return tokenizer.special(ids[t]); };
  if (answer.exact) return;
  if (answer.closed) {
    std::size_t end = span.second;
    while (end > span.first && !special(end - 1)) --end;
    if (end > span.first) span.second = end;
    return;
  }
  for (std::size_t t = span.first; t < span.second; ++t) {
    if (!special(t)) continue;
    span.second = t + 1;
    return;
  }
}

/// Ends a conversation with the end token of a tokenizer in which it has no text, so that no template can
/// write it (RWKV's 0). The last answer includes it.
void end_text(const tokenizer::Tokenizer& tokenizer, AnswerIds& row) {
  const std::optional<std::int32_t> end = tokenizer.eos();
  if (!end || tokenizer.token_of(*end)) return;
  if (!row.answers.empty() && row.answers.back().second == row.ids.size()) ++row.answers.back().second;
  row.ids.push_back(*end);
}

/// For each token, the number of bytes that a decoder has given after it, at most those of the tokens up to
/// it; empty if the tokens do not give the text back.
std::vector<std::size_t> ends_of(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                 std::string_view text) {
  std::vector<std::size_t> ends;
  ends.reserve(ids.size());
  const auto decoder = tokenizer.text_decoder();
  std::string decoded;
  for (const std::int32_t id : ids) {
    const std::size_t before = decoded.size();
    decoder->push(id, decoded);
    if (!text.substr(before).starts_with(std::string_view(decoded).substr(before))) return {};
    ends.push_back(decoded.size());
  }
  decoder->finish(decoded);
  if (decoded != text) return {};
  if (!ends.empty()) ends.back() = decoded.size();
  return ends;
}

/// Places of bytes among the tokens.
class Places {
 public:
  Places(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::string_view text)
      : tokenizer_(tokenizer), ids_(ids), text_(text), ends_(ends_of(tokenizer, ids, text)) {}

  /// Returns the first token with a byte at or after `byte`.
  std::size_t first(std::size_t byte) const {
    if (byte == 0) return 0;
    if (ends_.empty()) return common(byte).first;
    auto token = static_cast<std::size_t>(std::ranges::upper_bound(ends_, byte) - ends_.begin());
    while (token > 0 && bytes_before(token) > byte) --token;
    return token;
  }
  /// Returns the token after the last one with a byte before `byte`.
  std::size_t last(std::size_t byte) const {
    if (byte == 0) return 0;
    if (byte >= text_.size()) return ids_.size();
    if (ends_.empty()) {
      const auto [tokens, whole] = common(byte);
      return whole ? tokens : std::min(tokens + 1, ids_.size());
    }
    const auto reached = std::ranges::lower_bound(ends_, byte);
    auto token = std::min(static_cast<std::size_t>(reached - ends_.begin()) + 1, ids_.size());
    while (token > 1 && bytes_before(token - 1) >= byte) --token;
    return token;
  }

 private:
  /// Returns the bytes of the first `count` tokens. A decoder may give them later, with those of a next
  /// token.
  std::size_t bytes_before(std::size_t count) const { return tokenizer_.count_bytes(ids_.first(count)); }

  /// For a tokenizer that changes the text: the tokens that the text and its beginning share, and whether
  /// these are all of the beginning's.
  std::pair<std::size_t, bool> common(std::size_t byte) const {
    const std::vector<std::int32_t> before = tokenizer_.encode(text_.substr(0, byte));
    const auto [end, other] = std::mismatch(before.begin(), before.end(), ids_.begin(), ids_.end());
    return {static_cast<std::size_t>(end - before.begin()), end == before.end()};
  }

  const tokenizer::Tokenizer& tokenizer_;
  std::span<const std::int32_t> ids_;
  std::string_view text_;
  std::vector<std::size_t> ends_;
};

}  // namespace

bool is_assistant(const Messages& message) {
  return message.contains("role") && message["role"] == "assistant";
}

TrainOn parse_train_on(std::string_view name) {
  if (name == "last") return TrainOn::last;
  return name == "all" ? TrainOn::all : TrainOn::assistant;
}

std::vector<Span> token_spans(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                              std::string_view text, std::span<const Span> parts) {
  std::vector<Span> spans;
  if (parts.empty()) return spans;
  const Places places(tokenizer, ids, text);
  for (const Span& part : parts) spans.emplace_back(places.first(part.first), places.last(part.second));
  return spans;
}

AnswerIds answer_ids(const ChatFormat& format, const tokenizer::Tokenizer& tokenizer,
                     const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     TrainOn train_on, const std::string& where) {
  try {
    const chat::Rendered rendered = format.render(messages, false, tools);
    const std::vector<Answer> answers = answers_of(format, messages, tools, rendered, train_on, where);
    AnswerIds out{tokenizer.encode(rendered.text)};
    std::vector<Span> bytes;
    for (const Answer& answer : answers) bytes.push_back(answer.bytes);
    out.answers = token_spans(tokenizer, out.ids, rendered.text, bytes);
    for (std::size_t i = 0; i < answers.size(); ++i) end_turn(tokenizer, out.ids, answers[i], out.answers[i]);
    if (is_assistant(messages.back())) end_text(tokenizer, out);
    return out;
  } catch (const chat::TemplateError&) {
    format.rethrow_at(where);
  }
}

}  // namespace mantissa::data
