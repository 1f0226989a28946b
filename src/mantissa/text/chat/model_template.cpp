// The chat template and the special tokens of a model directory.
#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/text/chat/templates.h"

namespace mantissa::chat {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t kLargest = 64u << 20;  // bytes of a template or config

// Returns null if there is no such file.
std::optional<std::string> read_small_file(const fs::path& path) {
  if (!disk::exists(path)) return std::nullopt;
  return disk::read_text_file(path, kLargest);
}

nlohmann::ordered_json parse_config(const std::string& text, const fs::path& path) {
  auto config = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!config.is_object())
    throw FileError("{}: expected a JSON object. Fix: restore the file of the model", path.string());
  return config;
}

nlohmann::ordered_json read_config(const fs::path& directory) {
  const fs::path path = directory / "tokenizer_config.json";
  const auto bytes = read_small_file(path);
  return bytes ? parse_config(*bytes, path) : nlohmann::ordered_json::object();
}

// A token is a string, or an object that says more about it.
std::optional<std::string> token_text(const nlohmann::ordered_json& token) {
  if (token.is_string()) return token.get<std::string>();
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return token["content"].get<std::string>();
  return std::nullopt;
}

nlohmann::ordered_json tokens_of(const nlohmann::ordered_json& config) {
  nlohmann::ordered_json tokens = nlohmann::ordered_json::object();
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& token) {
    if (const auto text = token_text(token)) tokens[name] = *text;
  };
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    if (config.contains(name)) add(name, config[name]);
  }
  for (const char* extra : {"extra_special_tokens", "model_specific_special_tokens"}) {
    if (!config.contains(extra) || !config[extra].is_object()) continue;
    for (const auto& [name, token] : config[extra].items()) add(name, token);
  }
  return tokens;
}

using NamedTemplates = std::vector<std::pair<std::string, ModelTemplate>>;

// Adds the templates of a config, which `name` names in messages.
void add_templates(const nlohmann::ordered_json& config, const std::string& name, NamedTemplates& found) {
  if (!config.contains("chat_template")) return;
  const auto& own = config["chat_template"];
  if (own.is_string()) {
    found.push_back({"default", {own.get<std::string>(), name, {}}});
    return;
  }
  if (own.is_null()) return;
  const auto damaged = [&] {
    return FileError(fmt::format(
        "{}: expected a string, or an array of objects with \"name\" and \"template\". Fix: restore the file "
        "of the model, or choose a built-in template by data.template or --template",
        name));
  };
  if (!own.is_array()) throw damaged();
  for (const auto& row : own) {
    if (!row.is_object() || !row.contains("name") || !row["name"].is_string() || !row.contains("template") ||
        !row["template"].is_string()) {
      throw damaged();
    }
    const auto row_name = row["name"].get<std::string>();
    found.push_back(
        {row_name, {row["template"].get<std::string>(), fmt::format("{} \"{}\"", name, row_name), {}}});
  }
}

// The templates of a directory by name, the files before the config.
NamedTemplates templates_of(const fs::path& directory, const nlohmann::ordered_json& config) {
  NamedTemplates found;
  const auto add_file = [&](const std::string& name, const fs::path& path) {
    if (auto source = read_small_file(path)) found.push_back({name, {std::move(*source), path.string(), {}}});
  };
  add_file("default", directory / "chat_template.jinja");
  if (const fs::path more = directory / "additional_chat_templates"; disk::exists(more)) {
    for (const fs::path& file : disk::entries(more)) {
      if (file.extension() == ".jinja") add_file(file.stem().string(), file);
    }
  }
  add_templates(config, (directory / "tokenizer_config.json").string() + ": chat_template", found);
  return found;
}

// The template `which` of `found`, which come from `where`.
std::optional<ModelTemplate> choose(NamedTemplates found, const nlohmann::ordered_json& config,
                                    std::string_view which, const fs::path& where) {
  if (found.empty()) return std::nullopt;
  std::vector<std::string> names;
  for (auto& [name, candidate] : found) {
    names.push_back(name);
    if (name != which && found.size() > 1) continue;
    if (name != which && which != "default") continue;
    candidate.special_tokens = tokens_of(config);
    return std::move(candidate);
  }
  throw ConfigError("{}: no chat template \"{}\". Fix: choose one of {}", where.string(), which,
                    fmt::join(names, ", "));
}

}  // namespace

nlohmann::ordered_json special_tokens(const fs::path& directory) {
  return tokens_of(read_config(directory));
}

std::optional<ModelTemplate> find_model_template(const fs::path& directory, std::string_view which) {
  const nlohmann::ordered_json config = read_config(directory);
  return choose(templates_of(directory, config), config, which, directory);
}

nlohmann::ordered_json special_tokens_in(const std::string& config, const fs::path& file) {
  return tokens_of(parse_config(config, file));
}

std::optional<ModelTemplate> find_template_in(const std::string& config, const fs::path& file) {
  const nlohmann::ordered_json json = parse_config(config, file);
  NamedTemplates found;
  add_templates(json, file.string() + ": chat_template", found);
  return choose(std::move(found), json, "default", file);
}

}  // namespace mantissa::chat
