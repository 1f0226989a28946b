#include "mantissa/files/gguf/write_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/gguf/sentencepiece_merges.h"
#include "mantissa/files/gguf/special_tokens.h"
#include "mantissa/files/gguf/split_patterns.h"
#include "mantissa/files/io/json.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::gguf {
namespace {

using nlohmann::json;

constexpr const char* kFile = "tokenizer.json";

/// Returns member `key`, or null JSON.
json member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? json() : *found;
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool truth_of(const json& value, bool otherwise) {
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

/// True for BPE over bytes: a ByteLevel step splits or only maps bytes.
bool is_byte_level(const json& step) {
  if (member(step, "type") == "ByteLevel") return true;
  const json steps = member(step, "pretokenizers");
  return steps.is_array() && std::ranges::any_of(steps, is_byte_level);
}

class TokenizerWriter {
 public:
  TokenizerWriter(const ReadFile& read, const std::filesystem::path& folder, const model::ModelConfig& config,
                  HeaderWriter& header)
      : file_(folder / kFile), config_(config), header_(header) {
    rwkv_ = read(kRwkvVocabulary).value_or("");
    if (const auto text = read(kFile)) tokenizer_ = io::parse_json(*text, file_);
    if (const auto text = read("tokenizer_config.json"))
      settings_ = io::parse_json(*text, folder / "tokenizer_config.json");
    template_ = read("chat_template.jinja").value_or("");
    if (const auto text = read("generation_config.json"))
      generation_ = io::parse_json(*text, folder / "generation_config.json");
  }

  std::vector<std::string> write() {
    const json model = member(tokenizer_, "model");
    const bool rwkv = tokenizer_.is_null() && !rwkv_.empty();
    if (rwkv) {
      rwkv_vocabulary();
    } else if (tokenizer_.is_null()) {
      none("the directory has no tokenizer.json");
    } else if (member(model, "type") != "BPE") {
      none("its tokenizer.json is not BPE");
    } else if (truth_of(member(model, "byte_fallback"), false)) {
      sentencepiece(model);
    } else {
      byte_level(model);
    }
    const json chat = member(settings_, "chat_template");
    if (template_.empty()) template_ = chat.is_array() ? default_template(chat) : text_of(chat);
    // The name of a template that llama.cpp contains.
    if (template_.empty() && rwkv) template_ = kRwkvTemplate;
    if (!template_.empty()) header_.add("tokenizer.chat_template", template_);
    return std::move(notes_);
  }

 private:
  void none(const std::string& why) {
    header_.add("tokenizer.ggml.model", "none");
    notes_.push_back(
        fmt::format("the file has no vocabulary, since {}; llama.cpp then takes token ids only", why));
    special_tokens();
  }

  static std::string default_template(const json& list) {
    for (const json& entry : list) {
      if (member(entry, "name") == "default") return text_of(member(entry, "template"));
    }
    return {};
  }

  /// Writes the vocabulary as llama.cpp's converter does: id 0 ends a text, and answers end with an empty
  /// line.
  void rwkv_vocabulary() {
    const std::unique_ptr<tokenizer::Tokenizer> vocabulary =
        tokenizer::parse_rwkv_tokenizer(rwkv_, kRwkvVocabulary);
    if (vocabulary->vocabulary() > config_.vocab_size) {
      return none(fmt::format("{} has {} entries, and the model {}", kRwkvVocabulary,
                              vocabulary->vocabulary(), config_.vocab_size));
    }
    std::vector<std::string> tokens = {"<s>"};
    std::vector<std::int32_t> kinds = {static_cast<std::int32_t>(TokenKind::control)};
    for (std::int32_t id = 1; id < config_.vocab_size; ++id) {
      const std::optional<std::string> bytes = vocabulary->token_of(id);
      tokens.push_back(bytes ? escaped_token(*bytes) : fmt::format("[PAD{}]", id));
      kinds.push_back(static_cast<std::int32_t>(bytes ? TokenKind::normal : TokenKind::unused));
    }
    header_.add("tokenizer.ggml.model", kRwkvModel);
    header_.add("tokenizer.ggml.tokens", tokens);
    header_.add("tokenizer.ggml.token_type", kinds);
    header_.add("tokenizer.ggml.bos_token_id", 0U);
    header_.add("tokenizer.ggml.eos_token_id", 0U);
    if (const auto end = vocabulary->id_of("\n\n"))
      header_.add("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(*end));
  }

  void byte_level(const json& model) {
    const json pre = member(tokenizer_, "pre_tokenizer"), normalizer = member(tokenizer_, "normalizer");
    const bool normalizes = member(normalizer, "type") == "NFC";
    const bool plain = normalizer.is_null() || normalizes;
    const SplitPattern* split =
        plain && is_byte_level(pre)
            ? split_of(pre, normalizes, truth_of(member(model, "ignore_merges"), false))
            : nullptr;
    if (split == nullptr) return none("GGUF has no name for the split of its tokenizer.json");
    header_.add("tokenizer.ggml.model", "gpt2");
    header_.add("tokenizer.ggml.pre", split->name);
    tokens(model);
    std::vector<std::string> merges;
    for (const auto& [left, right] : merges_of(model)) {
      if (ids_.contains(left) && ids_.contains(right) && ids_.contains(left + right))
        merges.push_back(left + " " + right);
    }
    header_.add("tokenizer.ggml.merges", merges);
    special_tokens();
  }

  void sentencepiece(const json& model) {
    const json pre = member(tokenizer_, "pre_tokenizer");
    const std::string normalizer = member(tokenizer_, "normalizer").dump();
    header_.add("tokenizer.ggml.model", "llama");
    header_.add("tokenizer.ggml.pre", "default");
    const std::vector<std::string> all = tokens(model);
    header_.add("tokenizer.ggml.scores", merge_scores(all, merges_of(model)));
    const json scheme = member(pre, "prepend_scheme");
    const bool prefix = normalizer.find("\"Prepend\"") != std::string::npos ||
                        (member(pre, "type") == "Metaspace" && scheme != "never");
    header_.add_flag("tokenizer.ggml.add_space_prefix", prefix);
    special_tokens();
  }

  /// Writes the tokens in the order of their ids, and their kinds. Returns them.
  std::vector<std::string> tokens(const json& model) {
    const auto size = static_cast<std::size_t>(config_.vocab_size);
    std::vector<std::string> all(size);
    std::vector<std::int32_t> kinds(size, static_cast<std::int32_t>(TokenKind::unused));
    std::map<std::int64_t, std::string> left_out;  // tokens without a row in the model
    const auto put = [&](const json& id, const std::string& token, std::int32_t kind) {
      if (!id.is_number_integer() || id < 0)
        fail(fmt::format("the token {} has the id {}", name_in_quotes(token), id.dump()));
      if (id >= config_.vocab_size) {
        left_out.emplace(id.get<std::int64_t>(), token);
        return;
      }
      const auto i = id.get<std::size_t>();
      all[i] = token;
      kinds[i] = kind;
    };
    const json vocabulary = member(model, "vocab");
    if (!vocabulary.is_object()) fail("has no vocabulary");
    const bool fallback = truth_of(member(model, "byte_fallback"), false);
    const std::string unknown = text_of(member(model, "unk_token"));
    for (const auto& [token, id] : vocabulary.items()) {
      const bool byte = fallback && token.size() == 6 && token.starts_with("<0x") && token.ends_with(">");
      put(id, token,
          static_cast<std::int32_t>(byte                           ? TokenKind::byte
                                    : fallback && token == unknown ? TokenKind::unknown
                                                                   : TokenKind::normal));
    }
    for (const json& added : member(tokenizer_, "added_tokens")) {
      const bool special = truth_of(member(added, "special"), false);
      const std::string token = text_of(member(added, "content"));
      const bool is_unknown = fallback && token == unknown;
      put(member(added, "id"), token,
          static_cast<std::int32_t>(is_unknown ? TokenKind::unknown
                                    : special  ? TokenKind::control
                                               : TokenKind::user_defined));
    }
    for (std::size_t i = 0; i < size; ++i) {
      if (kinds[i] == static_cast<std::int32_t>(TokenKind::unused)) {
        all[i] = fmt::format("[PAD{}]", i);
      } else {
        ids_.emplace(all[i], i);
      }
    }
    if (!left_out.empty()) {
      const auto& [id, token] = *left_out.begin();
      notes_.push_back(fmt::format(
          "{} of {} left out, which the model's vocab_size of {} excludes: the first is {} with the "
          "id {}",
          counted(left_out.size(), "token"), kFile, size, name_in_quotes(token), id));
    }
    header_.add("tokenizer.ggml.tokens", all);
    header_.add("tokenizer.ggml.token_type", kinds);
    return all;
  }

  std::vector<std::pair<std::string, std::string>> merges_of(const json& model) const {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const json& merge : member(model, "merges")) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        pairs.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = text_of(merge);
      const std::size_t space = text.find(' ', 1);
      if (text.empty() || space == std::string::npos) fail("has a merge that is not a pair");
      pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return pairs;
  }

  /// Returns the ids that a config gives for `key`, which are in the vocabulary: a number, or several in a
  /// list.
  std::vector<std::size_t> ids_in(const json& config, const char* key) const {
    const json value = member(config, key);
    std::vector<std::size_t> ids;
    for (const json& id : value.is_array() ? value : json::array({value})) {
      if (id.is_number_integer() && id >= 0 && id < config_.vocab_size) ids.push_back(id.get<std::size_t>());
    }
    return ids;
  }

  /// Writes the ids of the special tokens: those that the tokenizer names, or else those of config.json, or
  /// of generation_config.json.
  void special_tokens() {
    const auto put = [&](const char* name, const char* token_key, const char* id_key) {
      json token = member(settings_, token_key);
      if (token.is_object()) token = member(token, "content");
      const auto found = ids_.find(text_of(token));
      std::optional<std::size_t> id;
      if (found != ids_.end()) id = found->second;
      for (const json& config : {config_.source, generation_}) {
        const std::vector<std::size_t> ids = ids_in(config, id_key);
        if (!id && !ids.empty()) id = ids.front();
      }
      if (id) header_.add(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<std::uint32_t>(*id));
      return id;
    };
    const std::optional<std::size_t> bos = put("bos", "bos_token", "bos_token_id");
    const std::optional<std::size_t> eos = put("eos", "eos_token", "eos_token_id");
    put("unknown", "unk_token", "unk_token_id");
    put("padding", "pad_token", "pad_token_id");
    if (eos) end_of_turn(*eos);
    header_.add_flag("tokenizer.ggml.add_bos_token", bos && adds("bos_token", true));
    header_.add_flag("tokenizer.ggml.add_eos_token", eos && adds("eos_token", false));
  }

  /// Writes the other id that ends an answer, of generation_config.json or else of config.json. GGUF has no
  /// key for a third.
  void end_of_turn(std::size_t eos) {
    std::vector<std::size_t> ids = ids_in(generation_, "eos_token_id");
    if (ids.empty()) ids = ids_in(config_.source, "eos_token_id");
    std::erase(ids, eos);
    if (ids.empty()) return;
    header_.add("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(ids.front()));
    ids.erase(ids.begin());
    if (!ids.empty())
      notes_.push_back(fmt::format("GGUF has no key for more than two ids that end an answer; left out: {}",
                                   fmt::join(ids, ", ")));
  }

  /// Returns true if the post-processor adds the token before (or after) a text.
  bool adds(const char* token_key, bool before) const {
    json token = member(settings_, token_key);
    if (token.is_object()) token = member(token, "content");
    return adds(member(tokenizer_, "post_processor"), text_of(token), before);
  }
  static bool adds(const json& processor, const std::string& token, bool before) {
    for (const json& step : member(processor, "processors")) {
      if (adds(step, token, before)) return true;
    }
    const json single = member(processor, "single");
    if (!single.is_array() || single.empty() || token.empty()) return false;
    const json& end = before ? single.front() : single.back();
    return member(member(end, "SpecialToken"), "id") == token;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(fmt::format("{}: {}. Fix: save the tokenizer again", file_.string(), what));
  }

  std::filesystem::path file_;
  const model::ModelConfig& config_;
  HeaderWriter& header_;
  json tokenizer_, settings_, generation_;
  std::string template_, rwkv_;
  std::unordered_map<std::string, std::size_t> ids_;
  std::vector<std::string> notes_;
};

}  // namespace

std::vector<std::string> write_tokenizer(const ReadFile& read, const std::filesystem::path& folder,
                                         const model::ModelConfig& config, HeaderWriter& header) {
  return TokenizerWriter(read, folder, config, header).write();
}

}  // namespace mantissa::gguf
