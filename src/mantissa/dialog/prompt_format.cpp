#include "mantissa/dialog/prompt_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/suggest.h"
#include "mantissa/chat/templates.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/io/file.h"
#include "mantissa/rollout/complete.h"
#include "mantissa/text/known_ids.h"

namespace mantissa::dialog {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr std::uint64_t kLargestTemplate = std::uint64_t{16} << 20;

std::unique_ptr<tokenizer::Tokenizer> read_tokenizer(const weights::ModelSource& source) {
  if (auto bytes = data::tokenizer_of(source)) return bytes;
  if (source.files != nullptr) {
    throw ConfigError(fmt::format("{}. Fix: use another model", data::why_no_tokenizer(source)));
  }
  if (data::tokenizer_file(source.directory).empty()) {
    throw ConfigError(fmt::format("{}: no tokenizer. Fix: put the model's tokenizer.json into this directory",
                                  source.directory.empty() ? "the model" : source.directory.string()));
  }
  return tokenizer::make_tokenizer(source.directory.string());
}

/// Returns the chat template of the model, or null.
std::optional<chat::ModelTemplate> own_template(const weights::ModelSource& source) {
  if (source.files == nullptr) {
    return source.directory.empty() ? std::nullopt : chat::find_model_template(source.directory);
  }
  const auto config = weights::beside_weights(source, "tokenizer_config.json");
  return config ? chat::find_template_in(*config, source.weights) : std::nullopt;
}

nlohmann::ordered_json tokens_of(const weights::ModelSource& source) {
  if (source.files != nullptr) {
    const auto config = weights::beside_weights(source, "tokenizer_config.json");
    if (config) return chat::special_tokens_in(*config, source.weights);
  }
  return source.directory.empty() ? nlohmann::ordered_json::object() : chat::special_tokens(source.directory);
}

chat::Template choose_template(const weights::ModelSource& source, const std::string& name) {
  const std::vector<std::string> builtin = chat::builtin_template_names();
  if (name != kAuto) {
    if (const auto text = chat::builtin_template(name)) return chat::Template::parse(*text, name);
    std::error_code error;  // an inaccessible file does not exist
    const bool exists = std::filesystem::exists(name, error);
    if (exists || name.find('/') != std::string::npos || name.ends_with(".jinja"))
      return chat::Template::parse(io::read_text_file(name, kLargestTemplate), name);
    const auto near = nearest(name, builtin);
    throw ConfigError(fmt::format("--template {}: expected auto, a file, or one of {}{}", io::in_quotes(name),
                                  fmt::join(builtin, ", "),
                                  near ? fmt::format("; did you mean {}?", *near) : ""));
  }
  if (const auto own = own_template(source)) return chat::Template::parse(own->source, own->name);
  const std::filesystem::path& where = source.files == nullptr ? source.directory : source.weights;
  throw ConfigError(
      fmt::format("{}: no chat template. Fix: choose a built-in one with --template: {}, or give a Jinja "
                  "file",
                  where.empty() ? "the model" : where.string(), fmt::join(builtin, ", ")));
}

}  // namespace

nlohmann::ordered_json to_json(const std::vector<Message>& messages) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Message& m : messages) all.push_back({{"role", m.role}, {"content", m.content}});
  return all;
}

PromptFormat::PromptFormat(const weights::ModelSource& source, const std::string& template_name)
    : vocabulary_(source.config.vocab_size),
      tokenizer_(read_tokenizer(source)),
      special_tokens_(tokens_of(source)),
      template_(choose_template(source, template_name)) {
  find_ends(source);
}

std::string PromptFormat::render(const std::vector<Message>& messages, bool add_generation_prompt) const {
  return template_.render(chat::chat_context(to_json(messages), add_generation_prompt, special_tokens_)).text;
}

std::vector<std::int32_t> PromptFormat::ids_of(const std::vector<Message>& messages) const {
  std::vector<std::int32_t> ids = tokenizer_->encode(render(messages, true));
  text::check_known_ids(ids, *tokenizer_, vocabulary_, "the conversation");
  return ids;
}

void PromptFormat::find_ends(const weights::ModelSource& source) {
  ends_ = rollout::stop_ids(source);
  if (const auto eos = tokenizer_->eos()) ends_.push_back(*eos);
  try {
    constexpr std::string_view kAnswer = "answer";
    const std::string text = render({{"user", "question"}, {"assistant", std::string(kAnswer)}}, false);
    const std::size_t at = text.rfind(kAnswer);
    if (at != std::string::npos) {
      const std::vector<std::int32_t> after = tokenizer_->encode(text.substr(at + kAnswer.size()));
      if (!after.empty() && tokenizer_->special(after.front())) ends_.push_back(after.front());
    }
  } catch (const chat::TemplateError&) {
    // The template rejects this conversation; the conversation itself reports what it rejects.
  }
  std::ranges::sort(ends_);
  const auto repeated = std::ranges::unique(ends_);
  ends_.erase(repeated.begin(), repeated.end());
}

}  // namespace mantissa::dialog
