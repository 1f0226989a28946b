#include "mantissa/setup/data/chat_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/chat/templates.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/settings.h"

namespace mantissa::data {
namespace {

constexpr std::uint64_t kLargestTemplate = std::uint64_t{16} << 20;

/// Returns the chat template of the model, or null.
std::optional<chat::ModelTemplate> own_template(const weights::ModelSource& source) {
  if (source.files == nullptr) {
    return source.directory.empty() ? std::nullopt : chat::find_model_template(source.directory);
  }
  const auto config = weights::beside_weights(source, "tokenizer_config.json");
  return config ? chat::find_template_in(*config, source.weights) : std::nullopt;
}

/// Returns the token that ends a text, for a tokenizer without settings, if it is found in a rendered text;
/// another would become the pieces of its spelling. A conversation begins without a token.
nlohmann::ordered_json tokens_in_text(const tokenizer::Tokenizer& tokenizer) {
  nlohmann::ordered_json written = tokenizer::special_tokens(tokenizer),
                         found = nlohmann::ordered_json::object();
  if (!written.contains("eos_token")) return found;
  const auto end = written["eos_token"].get<std::string>();
  const std::vector<std::int32_t> ids = tokenizer.encode(end);
  if (ids.size() == 1 && tokenizer.token_of(ids.front()) == end) found["eos_token"] = end;
  return found;
}

nlohmann::ordered_json tokens_of(const weights::ModelSource& source, const tokenizer::Tokenizer& tokenizer) {
  const auto config = weights::beside_weights(source, "tokenizer_config.json");
  if (!config) return tokens_in_text(tokenizer);
  return source.files != nullptr ? chat::special_tokens_in(*config, source.weights)
                                 : chat::special_tokens(source.directory);
}

}  // namespace

ChatFormat::Chosen ChatFormat::choose(const weights::ModelSource& source, const std::string& name,
                                      const std::string& option) {
  const std::vector<std::string> builtin = chat::builtin_template_names();
  if (name != "auto") {
    if (const auto text = chat::builtin_template(name)) return {std::string(*text), name};
    const bool exists = disk::exists(name);
    if (exists || name.find('/') != std::string::npos || name.ends_with(".jinja"))
      return {disk::read_text_file(name, kLargestTemplate), name};
    const auto near = nearest(name, builtin);
    throw ConfigError(fmt::format("{} {}: expected auto, a file, or one of {}{}", option,
                                  name_in_quotes(name), fmt::join(builtin, ", "),
                                  near ? fmt::format("; did you mean {}?", *near) : ""));
  }
  auto own = own_template(source);
  // llama.cpp's converter writes this name in place of a template.
  const bool named = own && own->source == "rwkv-world";
  if (own && !named) return {std::move(own->source), std::move(own->name)};
  const model::Family* const family = model::find_family(source.config.model_type);
  const std::string_view usual = named               ? chat::kRwkvTemplate
                                 : family != nullptr ? family->chat_template
                                                     : std::string_view();
  if (const auto text = chat::builtin_template(usual)) return {std::string(*text), std::string(usual)};
  const std::filesystem::path& where = source.files == nullptr ? source.directory : source.weights;
  throw ConfigError(
      fmt::format("{}: no chat template. Fix: choose a built-in one with {}{}{}, or give a Jinja file{}",
                  where.empty() ? "the model" : where.string(), option,
                  option.ends_with('=') ? " one of " : ": ", fmt::join(builtin, ", "),
                  option.ends_with('=') ? "" : "; mantissa generate continues text without a template"));
}

ChatFormat::ChatFormat(Chosen chosen, nlohmann::ordered_json special_tokens)
    : source_(std::move(chosen.source)),
      special_tokens_(std::move(special_tokens)),
      template_(chat::Template::parse(source_, std::move(chosen.name))) {}

ChatFormat::ChatFormat(const weights::ModelSource& source, const std::string& name, const std::string& option,
                       const tokenizer::Tokenizer& tokenizer)
    : ChatFormat(choose(source, name, option), tokens_of(source, tokenizer)) {}

ChatFormat::ChatFormat(const config::RunConfig& config, const model::ModelConfig& model,
                       const tokenizer::Tokenizer& tokenizer)
    : ChatFormat(chat_source(config, model), config.data.chat_template, "data.template =", tokenizer) {
  fix_date();
}

chat::Rendered ChatFormat::render(const nlohmann::ordered_json& messages, bool add_generation_prompt,
                                  const nlohmann::ordered_json& tools) const {
  return template_.render(chat::chat_context(messages, add_generation_prompt, special_tokens_, tools),
                          options_);
}

std::vector<std::string> ChatFormat::turn_ends() const {
  if (source_ != chat::builtin_template(chat::kRwkvTemplate)) return {};
  return {"\n\nUser:"};
}

void ChatFormat::rethrow_at(const std::string& where) const {
  try {
    throw;
  } catch (const chat::RaisedByTemplate& e) {
    throw FileError(
        fmt::format("{}: the template {} rejects the conversation: {}", where, name(), e.raised()));
  } catch (const chat::TemplateError& e) {
    throw FileError(fmt::format("{}: the conversation cannot be rendered: {}", where, e.what()));
  }
}

void ChatFormat::fix_date() {
  options_.clock = [] {
    chat::LocalTime time;
    time.calendar = {};
    time.calendar.tm_year = 2024 - 1900;
    time.calendar.tm_mon = 6;
    time.calendar.tm_mday = 26;
    time.calendar.tm_wday = 5;
    time.calendar.tm_yday = 207;
    return time;
  };
}

weights::ModelSource chat_source(const config::RunConfig& config, const model::ModelConfig& model) {
  const std::filesystem::path spec = config.data.tokenizer;
  if (spec == "model") return origin_of(config.model, model);
  if (spec == "byte") return {model, {}};
  if (io::is_gguf(spec)) return weights::find_model(spec);
  const bool directory = disk::is_directory(spec);
  return {model, {}, directory ? tokenizer::files_directory(spec) : spec.parent_path()};
}

}  // namespace mantissa::data
