#include "mantissa/setup/data/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/gguf/rwkv_vocabulary.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/text/chat/templates.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/settings.h"

namespace mantissa::data {
namespace {

constexpr std::uint64_t kLargestTokenizerFile = std::uint64_t{1} << 30;

/// Files beside a tokenizer file that belong to it.
constexpr const char* kSettings[] = {"tokenizer_config.json", "special_tokens_map.json",
                                     "added_tokens.json",     "chat_template.jinja",
                                     "chat_template.json",    "generation_config.json"};
/// Files of other libraries' tokenizers that may be beside a supported one.
constexpr const char* kOtherForms[] = {"tokenizer.json", "tokenizer.model", "spiece.model",
                                       "vocab.json",     "merges.txt",      "vocab.txt"};

/// Returns the name under which a model directory's reader finds the tokenizer file.
std::string name_in_directory(const std::filesystem::path& file) {
  if (file.extension() == ".json") return "tokenizer.json";
  if (file.extension() == ".model") return "tokenizer.model";
  return file.filename().string();
}

}  // namespace

std::filesystem::path tokenizer_file(const std::filesystem::path& directory) {
  if (directory.empty()) return {};
  const std::filesystem::path known = tokenizer::find_in_directory(directory);
  if (!known.empty()) return known;
  for (const char* name : {"vocab.json", "vocab.txt"}) {
    if (disk::exists(directory / name)) return directory / name;
  }
  return {};
}

bool has_vocabulary(const weights::ModelSource& source) {
  // The settings come from any vocabulary of a GGUF file.
  if (source.files != nullptr) return source.files->contains("tokenizer_config.json");
  return !tokenizer_file(source.directory).empty();
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const weights::ModelSource& source) {
  const std::filesystem::path directory = source.directory;
  if (source.files != nullptr) {
    if (const std::optional<std::string> json = weights::beside_weights(source, "tokenizer.json")) {
      const std::string file = source.weights.string();
      const std::string settings = weights::beside_weights(source, "tokenizer_config.json").value_or("");
      return tokenizer::parse_hf_tokenizer(*json, file, settings, file);
    }
    if (const auto vocabulary = weights::beside_weights(source, gguf::kRwkvVocabulary))
      return tokenizer::parse_rwkv_tokenizer(*vocabulary, source.weights.string());
  } else if (!directory.empty() && !tokenizer::find_in_directory(directory).empty()) {
    return tokenizer::make_tokenizer(directory.string());
  }
  const bool bytes = !has_vocabulary(source) && source.config.vocab_size == kByteEntries;
  return bytes ? tokenizer::make_tokenizer("byte") : nullptr;
}

std::string why_no_tokenizer(const weights::ModelSource& source) {
  if (source.files != nullptr && has_vocabulary(source)) {
    return fmt::format("the vocabulary of {} is not supported; its ids are not bytes",
                       source.weights.string());
  }
  const std::filesystem::path file = tokenizer_file(source.directory);
  if (!file.empty()) {
    return fmt::format(
        "this model has the tokenizer {}, which this version does not support; its ids are "
        "not bytes",
        file.string());
  }
  return fmt::format("{} has a vocabulary of {} entries and no tokenizer file; bytes need a vocabulary of {}",
                     source.weights.string(), source.config.vocab_size, kByteEntries);
}

std::unique_ptr<tokenizer::Tokenizer> make_tokenizer(const std::string& spec) {
  if (!io::is_gguf(spec)) return tokenizer::make_tokenizer(spec);
  const weights::ModelSource source = weights::find_model(std::filesystem::path(spec));
  if (auto found = tokenizer_of(source)) return found;
  throw ConfigError(fmt::format("{}. Fix: give a tokenizer file", why_no_tokenizer(source)));
}

weights::ModelSource origin_of(const config::ModelSection& section, const model::ModelConfig& model) {
  const std::filesystem::path path = section.path;
  if (path.empty()) return {model, path, std::filesystem::path(section.config).parent_path()};
  if (io::is_gguf(path)) return weights::find_model(path);
  if (!disk::is_file(path)) return {model, path, tokenizer::files_directory(path)};
  return {model, path, path.has_parent_path() ? path.parent_path() : "."};
}

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const config::RunConfig& config,
                                                   const model::ModelConfig& model) {
  if (config.data.tokenizer != "model") return make_tokenizer(config.data.tokenizer);
  const weights::ModelSource source = origin_of(config.model, model);
  if (auto found = tokenizer_of(source)) return found;
  throw ConfigError(
      fmt::format("data.tokenizer = \"model\": {}. Fix: set data.tokenizer to a tokenizer file, or set "
                  "data.source to a file of ids and data.format = \"tokens\"",
                  why_no_tokenizer(source)));
}

namespace {

using Files = std::vector<std::pair<std::string, std::string>>;
constexpr const char* kSettingsFile = "tokenizer_config.json";

bool contains(const Files& files, const char* name) {
  return std::ranges::find(files, name, &Files::value_type::first) != files.end();
}

/// Adds the settings of a tokenizer that has none, as far as transformers can read its file.
void add_settings(Files& files, const tokenizer::Tokenizer& tokenizer) {
  const bool json = contains(files, "tokenizer.json");
  if (!json && !contains(files, "tokenizer.model")) return;
  const auto form = json ? tokenizer::FileForm::tokenizer_json : tokenizer::FileForm::sentencepiece;
  files.emplace_back(kSettingsFile, tokenizer::settings_json(tokenizer, form));
}

/// Returns the chat template for a model whose settings a run has added. Conversations of the run began
/// without a bos_token, and had no eos_token if the tokenizer does not find it in a text, as that of a
/// SentencePiece file: other programs must render them in the same way.
std::string as_in_training(const std::string& source, bool finds_tokens) {
  const bool begins = source.find("bos_token") != std::string::npos,
             ends = !finds_tokens && source.find("eos_token") != std::string::npos;
  return fmt::format("{}{}{}", begins ? "{% set bos_token = '' %}" : "",
                     ends ? "{% set eos_token = '' %}" : "", source);
}

Files byte_files() {
  Files files{{"tokenizer.json", tokenizer::byte_tokenizer_json()}};
  add_settings(files, *tokenizer::byte_tokenizer());
  return files;
}

/// Returns true if any text of the config is encoded.
bool encodes_text(const config::RunConfig& config) {
  if (config.train.objective != "pretrain") return true;
  const auto text = [&](const std::vector<std::string>& files) {
    return !files.empty() && holds_text(files, config.data.format);
  };
  for (std::size_t s = 0; s < config::stage_count(config); ++s) {
    if (text(config::stage_config(config, s).data.source)) return true;
  }
  return text(config.data.validation.files);
}

Files own_files(const config::RunConfig& config, const model::ModelConfig& model, bool in_memory) {
  const std::string& spec = config.data.tokenizer;
  if (spec == "byte") {
    const bool bytes = model.vocab_size == kByteEntries || (!in_memory && encodes_text(config));
    return bytes ? byte_files() : Files();
  }
  const bool of_model = spec == "model", directory = disk::is_directory(spec);
  if (const std::filesystem::path path = of_model ? config.model.path : spec; io::is_gguf(path)) {
    std::map<std::string, std::string> files = *weights::find_model(path).files;
    if (!of_model) files.erase("generation_config.json");
    return {files.begin(), files.end()};
  }
  std::filesystem::path file = spec;
  if (of_model) file = tokenizer_file(origin_of(config.model, {}).directory);
  if (directory) file = tokenizer::find_in_directory(tokenizer::files_directory(spec));
  if (file.empty()) return {};
  Files files;
  const auto take = [&](const std::filesystem::path& from, const std::string& name) {
    files.emplace_back(name, disk::read_text_file(from, kLargestTokenizerFile));
  };
  const std::string own = name_in_directory(file);
  take(file, own);
  // Settings beside a file of another name, such as gpt2.tokenizer.json, may be those of another tokenizer.
  if (file.filename() != own) return files;
  const std::filesystem::path beside = file.parent_path();
  for (const char* name : kSettings) {
    if (name == std::string("generation_config.json") && !of_model) continue;
    if (disk::exists(beside / name)) take(beside / name, name);
  }
  for (const char* name : kOtherForms) {
    if (own != name && disk::exists(beside / name)) take(beside / name, name);
  }
  return files;
}

}  // namespace

Files files_of_tokenizer(const config::RunConfig& config, const model::ModelConfig& model, bool in_memory) {
  Files files = own_files(config, model, in_memory);
  const bool adds = !files.empty() && !contains(files, kSettingsFile);
  if (adds) {
    try {
      add_settings(files, *tokenizer_of(config, model));
    } catch (const Error&) {
      if (in_memory || encodes_text(config)) throw;  // ids need no tokenizer that can be read
    }
  }
  const std::string& name = config.data.chat_template;
  if (config.train.objective == "pretrain" || name == "auto" || name == "none") return files;
  // The model answers under the template that it was trained with.
  constexpr const char* kFile = "chat_template.jinja";
  constexpr std::uint64_t kLargestTemplate = std::uint64_t{16} << 20;
  const auto builtin = chat::builtin_template(name);
  std::erase_if(files, [&](const auto& file) { return file.first == kFile; });
  std::string source = builtin ? std::string(*builtin) : disk::read_text_file(name, kLargestTemplate);
  if (adds || config.data.tokenizer == "byte")
    source = as_in_training(source, contains(files, "tokenizer.json"));
  files.emplace_back(kFile, std::move(source));
  return files;
}

}  // namespace mantissa::data
