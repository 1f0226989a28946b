#include "mantissa/app/serve/language.h"

#include <fmt/format.h>

#include "mantissa/app/serve/request_error.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/chat/template.h"
#include "mantissa/text/chat/unicode.h"
#include "mantissa/text/rows/known_ids.h"

namespace mantissa::serve {

Language::Language(const weights::ModelSource& source, const std::string& template_name)
    : source_(source), tokenizer_(data::tokenizer_of(source)), ends_(rollout::stop_ids(source)) {
  if (tokenizer_ != nullptr) {
    if (ends_.empty() && tokenizer_->eos()) ends_ = {*tokenizer_->eos()};
    answer_ = dialog::answer_form(*tokenizer_, source);
  }
  try {
    chat_ = std::make_unique<dialog::PromptFormat>(source, template_name);
  } catch (const ConfigError& error) {
    if (template_name != "auto") throw;
    no_chat_ = error.what();
  }
}

EncodedPrompt Language::encode(const TextPrompt& prompt, const TextRequest& request,
                               const std::string& name) const {
  EncodedPrompt out{prompt.text, prompt.ids, ends_, request.stop};
  if (tokenizer_ == nullptr && !prompt.is_ids)
    throw RequestError(400, fmt::format("{}. Fix: give token ids", data::why_no_tokenizer(source_)),
                       "prompt");
  if (tokenizer_ == nullptr && !request.stop.empty())
    throw RequestError(
        400, "stop: this model has no tokenizer, so its output is token ids. Fix: leave it out", "stop");
  if (!prompt.is_ids) {
    out.ids = tokenizer_->encode_with_template(prompt.text);
    text::check_known_ids(out.ids, *tokenizer_, source_.config.vocab_size, name);
    if (answer_.begins_after(prompt.text))
      out.stops.insert(out.stops.end(), answer_.ends.begin(), answer_.ends.end());
  } else if (request.echo) {
    for (std::size_t i = 0; i < out.ids.size(); ++i)
      out.text += bytes_of(i == 0 ? -1 : out.ids[i - 1], out.ids[i]);
  }
  return out;
}

std::vector<EncodedPrompt> Language::encode(const TextRequest& request) const {
  std::vector<EncodedPrompt> all;
  if (request.chat) {
    if (chat_ == nullptr)
      throw RequestError(
          400, fmt::format("this server cannot chat: {}. Or start it with --template", no_chat_), "messages");
    try {
      all.push_back({{}, chat_->ids_of(request.messages), chat_->ends(), request.stop});
    } catch (const chat::TemplateError& error) {
      throw RequestError(400, fmt::format("messages: {}", error.what()), "messages");
    }
    const std::vector<std::string> turns = chat_->format().turn_ends();
    all.back().stops.insert(all.back().stops.end(), turns.begin(), turns.end());
    return all;
  }
  for (const TextPrompt& prompt : request.prompts) {
    const std::string name = request.prompts.size() == 1 ? "prompt" : fmt::format("prompt[{}]", all.size());
    all.push_back(encode(prompt, request, name));
  }
  return all;
}

std::optional<tokenizer::GrowingText> Language::growing_text(const EncodedPrompt& prompt, bool chat) const {
  if (tokenizer_ == nullptr) return std::nullopt;
  return tokenizer::GrowingText(*tokenizer_, prompt.stops,
                                chat ? tokenizer::SpecialTokens::left_out : tokenizer::SpecialTokens::kept);
}

std::string Language::bytes_of(std::int32_t previous, std::int32_t id) const {
  if (tokenizer_ == nullptr || !tokenizer_->known(id)) return fmt::format("token_id:{}", id);
  if (previous >= 0 && tokenizer_->known(previous)) {
    const std::int32_t both[] = {previous, id};
    const std::string before = tokenizer_->decode(std::span(both).first(1)), text = tokenizer_->decode(both);
    if (text.starts_with(before)) return text.substr(before.size());
  }
  return tokenizer_->decode({&id, 1});
}

std::string printed(const std::string& bytes) {
  if (chat::unicode::valid(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char c : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace mantissa::serve
