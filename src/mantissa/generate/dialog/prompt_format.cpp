#include "mantissa/generate/dialog/prompt_format.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/chat/escaped_bytes.h"
#include "mantissa/text/chat/unicode.h"
#include "mantissa/text/rows/known_ids.h"

namespace mantissa::dialog {
namespace {

std::unique_ptr<tokenizer::Tokenizer> read_tokenizer(const weights::ModelSource& source) {
  if (auto bytes = data::tokenizer_of(source)) return bytes;
  if (source.files != nullptr) {
    throw ConfigError("{}. Fix: use another model", data::why_no_tokenizer(source));
  }
  if (data::tokenizer_file(source.directory).empty()) {
    throw ConfigError(
        "{}: no tokenizer. Fix: put the model's tokenizer (tokenizer.json, tokenizer.model or rwkv_vocab_*.txt) "
        "into this directory",
        source.directory.empty() ? "the model" : source.directory.string());
  }
  return tokenizer::make_tokenizer(source.directory.string());
}

}  // namespace

nlohmann::ordered_json to_json(const std::vector<Message>& messages) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Message& m : messages) all.push_back({{"role", m.role}, {"content", m.content}});
  return all;
}

std::vector<std::int32_t> answer_ends(const tokenizer::Tokenizer& tokenizer, const data::ChatFormat* format,
                                      const weights::ModelSource& source) {
  if (format == nullptr) return {tokenizer.separator()};
  std::vector<std::int32_t> ends = rollout::stop_ids(source);
  if (const auto eos = tokenizer.eos()) ends.push_back(*eos);
  try {
    constexpr std::string_view kAnswer = "answer";
    const std::string text =
        format->render(to_json({{"user", "question"}, {"assistant", std::string(kAnswer)}}), false).text;
    const std::size_t at = text.rfind(kAnswer);
    if (at != std::string::npos) {
      const std::vector<std::int32_t> after = tokenizer.encode(text.substr(at + kAnswer.size()));
      if (!after.empty() && tokenizer.special(after.front())) ends.push_back(after.front());
    }
  } catch (const chat::TemplateError&) {
    // The template rejects this conversation; the conversation itself reports what it rejects.
  }
  std::ranges::sort(ends);
  const auto repeated = std::ranges::unique(ends);
  ends.erase(repeated.begin(), repeated.end());
  return ends;
}

PromptFormat::PromptFormat(const weights::ModelSource& source, const std::string& template_name)
    : vocabulary_(source.config.vocab_size),
      tokenizer_(read_tokenizer(source)),
      format_(source, template_name, "--template", *tokenizer_) {
  ends_ = answer_ends(*tokenizer_, &format_, source);
}

AnswerForm answer_form(const tokenizer::Tokenizer& tokenizer, const weights::ModelSource& source) {
  try {
    const data::ChatFormat format(source, "auto", "--template", tokenizer);
    std::vector<std::string> ends = format.turn_ends();
    if (ends.empty()) return {};
    constexpr std::string_view kQuestion = "question";
    const std::string text = format.render(to_json({{"user", std::string(kQuestion)}}), true).text;
    return {text.substr(text.rfind(kQuestion) + kQuestion.size()), std::move(ends)};
  } catch (const Error&) {
    return {};  // prompts are plain texts
  }
}

std::string PromptFormat::prompt_of(const std::vector<Message>& messages) const {
  const auto is_damaged = [](const Message& m) {
    return m.role == "assistant" &&
           !chat::unicode::valid(m.content);  // an answer that ends inside a character
  };
  if (std::ranges::none_of(messages, is_damaged)) return format_.render(to_json(messages), true).text;
  std::vector<std::string_view> texts;
  for (const Message& m : messages) texts.push_back(m.content);
  const chat::EscapedBytes bytes(texts);
  std::vector<Message> escaped = messages;
  for (Message& m : escaped) {
    if (is_damaged(m)) m.content = bytes.escape(m.content);
  }
  return bytes.restore(format_.render(to_json(escaped), true).text);
}

std::vector<std::int32_t> PromptFormat::ids_of(const std::vector<Message>& messages) const {
  std::vector<std::int32_t> ids = tokenizer_->encode(prompt_of(messages));
  text::check_known_ids(ids, *tokenizer_, vocabulary_, "the conversation");
  return ids;
}

}  // namespace mantissa::dialog
