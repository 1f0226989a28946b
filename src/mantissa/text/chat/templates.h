// Where a template comes from: the built-in ones, and the one of a model directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace mantissa::chat {

/// The built-in template of RWKV's "User: … Assistant: …" format, which has no special tokens.
inline constexpr std::string_view kRwkvTemplate = "rwkv";

/// Returns the names of the built-in templates: chatml, llama3, qwen, mistral, gemma, rwkv.
std::vector<std::string> builtin_template_names();

/// Returns the source of a built-in template, or null. Conversations of system, user and assistant messages
/// without tools are rendered as by the models' own templates; docs/chat.md names the models. The assistant's
/// messages are `generation` blocks.
std::optional<std::string_view> builtin_template(std::string_view name);

/// The chat template of a model directory.
struct ModelTemplate {
  std::string source;
  std::string name;                       // the path of its file, for errors
  nlohmann::ordered_json special_tokens;  // bos_token, eos_token, …: strings, by name
};

/// Reads the chat template of a model directory: `chat_template.jinja`, else `chat_template` of
/// `tokenizer_config.json`, a string or an array of named templates. `which` chooses among several; the
/// preset is "default". A file additional_chat_templates/NAME.jinja is also a named template. Returns null if
/// the directory has none. Throws a FileError if a file is damaged, and a ConfigError for a name that does
/// not exist.
std::optional<ModelTemplate> find_model_template(const std::filesystem::path& directory,
                                                 std::string_view which = "default");

/// Returns the special tokens of a model directory's tokenizer_config.json as strings: bos_token, eos_token,
/// unk_token, sep_token, pad_token, cls_token, mask_token and those of extra_special_tokens. A token may be a
/// string or an object with "content". Empty if there is no such file.
nlohmann::ordered_json special_tokens(const std::filesystem::path& directory);

/// The same for the text of a tokenizer_config.json, which comes from `file`.
std::optional<ModelTemplate> find_template_in(const std::string& config, const std::filesystem::path& file);
nlohmann::ordered_json special_tokens_in(const std::string& config, const std::filesystem::path& file);

}  // namespace mantissa::chat
