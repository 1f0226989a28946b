#include "mantissa/files/gguf/read_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "mantissa/core/base/printable.h"
#include "mantissa/files/gguf/rwkv_vocabulary.h"
#include "mantissa/files/gguf/sentencepiece_merges.h"
#include "mantissa/files/gguf/special_tokens.h"
#include "mantissa/files/gguf/split_patterns.h"

namespace mantissa::gguf {
namespace {

// Keeps the order of keys: vocabularies are written by id.
using Json = nlohmann::ordered_json;

constexpr const char* kSpace = "\xE2\x96\x81";  // ▁

bool is_spaces(const std::string& token) {
  return token.size() > 1 && token.find_first_not_of(' ') == std::string::npos;
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

class TokenizerReader {
 public:
  TokenizerReader(const GgufFile& file, const Texts& tokens)
      : file_(file),
        tokens_(tokens),
        special_(special_tokens(file)),
        kinds_(file.integers("tokenizer.ggml.token_type")) {
    if (kinds_ != nullptr && kinds_->size() != tokens_.size()) {
      file_.fail(fmt::format("has {} tokens, but types of {}. Fix: download the file again", tokens_.size(),
                             kinds_->size()));
    }
  }

  TokenizerFiles read() {
    TokenizerFiles result;
    const std::string model = file_.text("tokenizer.ggml.model").value_or("");
    Json tokenizer;
    if (model == "gpt2") {
      tokenizer = byte_level(result.notes);
    } else if (model == "llama") {
      tokenizer = sentencepiece();
    } else if (model == kRwkvModel) {
      return rwkv();
    } else {
      result.notes.push_back(fmt::format(
          "the vocabulary {} is not supported, so no tokenizer.json is written; copy that of the model",
          name_in_quotes(model)));
    }
    // A token of a GGUF file may hold any bytes.
    constexpr auto kReplace = Json::error_handler_t::replace;
    if (!tokenizer.is_null())
      result.files.emplace_back("tokenizer.json", tokenizer.dump(1, ' ', false, kReplace) + "\n");
    result.files.emplace_back("tokenizer_config.json", config().dump(2, ' ', false, kReplace) + "\n");
    const Json generation = generation_config();
    if (!generation.empty()) result.files.emplace_back("generation_config.json", generation.dump(2) + "\n");
    return result;
  }

 private:
  TokenKind kind(std::size_t id) const {
    return kinds_ == nullptr ? TokenKind::normal : static_cast<TokenKind>((*kinds_)[id]);
  }

  /// Returns the ids of the tokens. Of equal tokens the last has the name, as in a Python dict.
  static Json vocabulary(const Texts& tokens) {
    std::unordered_map<std::string_view, std::size_t> last;
    for (std::size_t id = 0; id < tokens.size(); ++id) last[tokens[id]] = id;
    Json vocab = Json::object();
    auto& map = vocab.get_ref<Json::object_t&>();
    map.reserve(tokens.size());
    for (std::size_t id = 0; id < tokens.size(); ++id) {
      if (last[tokens[id]] == id) map.push_back({tokens[id], id});
    }
    return vocab;
  }

  /// Returns the files of an RWKV vocabulary.
  TokenizerFiles rwkv() const {
    std::string vocabulary;
    for (std::size_t id = 1; id < tokens_.size(); ++id) {
      if (kind(id) == TokenKind::unused || kind(id) == TokenKind::control) continue;
      const std::optional<std::string> bytes = token_bytes(tokens_[id]);
      if (!bytes || bytes->empty())
        file_.fail(fmt::format("the token {} with the id {} is not a text with escapes, such as \\n or \\xff",
                               name_in_quotes(tokens_[id]), id));
      vocabulary += vocabulary_line(id, *bytes);
    }
    Json settings = {{"tokenizer_class", "RwkvTokenizer"}};
    if (const auto chat = file_.text("tokenizer.chat_template"); chat && *chat != kRwkvTemplate)
      settings["chat_template"] = *chat;
    TokenizerFiles result;
    result.files.emplace_back(kRwkvVocabulary, std::move(vocabulary));
    result.files.emplace_back("tokenizer_config.json",
                              settings.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    result.files.emplace_back("generation_config.json", generation_config().dump(2) + "\n");
    return result;
  }

  /// Returns the tokens that are found in the text before it is split.
  Json added_tokens() const {
    Json added = Json::array();
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      const bool special =
          kind(id) == TokenKind::control ||
          (kind(id) == TokenKind::unknown && special_.unknown == static_cast<std::int64_t>(id));
      if (!special && kind(id) != TokenKind::user_defined) continue;
      added.push_back({{"id", id},
                       {"content", tokens_[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", special}});
    }
    return added;
  }

  /// Returns the template that adds bos and eos, or `otherwise`.
  Json post_processor(Json otherwise) const {
    if (!special_.add_bos && !special_.add_eos) return otherwise;
    Json single = Json::array(), pair = Json::array(), tokens = Json::object();
    const auto put = [&](Json& list, std::int64_t id, int type) {
      const std::string& token = tokens_[static_cast<std::size_t>(id)];
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
      tokens[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
    };
    const auto text = [&](Json& list, const char* name, int type) {
      if (special_.add_bos) put(list, *special_.bos, type);
      list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
      if (special_.add_eos) put(list, *special_.eos, type);
    };
    text(single, "A", 0);
    text(pair, "A", 0);
    text(pair, "B", 1);
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
  }

  static Json with_parts(Json added, Json normalizer, Json pre, Json post, Json decoder, Json model) {
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", std::move(added)},
            {"normalizer", std::move(normalizer)},
            {"pre_tokenizer", std::move(pre)},
            {"post_processor", std::move(post)},
            {"decoder", std::move(decoder)},
            {"model", std::move(model)}};
  }

  static Json bpe(const Texts& tokens, Json unknown, bool fallback, bool ignores_merges, Json merges) {
    return {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", std::move(unknown)},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", fallback},
            {"byte_fallback", fallback},
            {"ignore_merges", ignores_merges},
            {"vocab", vocabulary(tokens)},
            {"merges", std::move(merges)}};
  }

  Json byte_level(std::vector<std::string>& notes) const {
    const std::string pre = file_.text("tokenizer.ggml.pre").value_or("");
    const SplitPattern* split = find_split(pre);
    if (split == nullptr) {
      notes.push_back(
          fmt::format("tokenizer.ggml.pre is {}, whose pattern is unknown, so no tokenizer.json is "
                      "written; copy that of the model",
                      name_in_quotes(pre)));
      return {};
    }
    const Texts* merges = file_.texts("tokenizer.ggml.merges");
    if (merges == nullptr)
      file_.fail("the metadata key tokenizer.ggml.merges is missing. Fix: download the file again");
    Json pairs = Json::array();
    for (const std::string& merge : *merges) {
      // A piece may begin with a space, in vocabularies with added tokens of spaces.
      const std::size_t space = merge.find(' ', 1);
      if (space == std::string::npos)
        file_.fail(fmt::format("the merge {} is not a pair", name_in_quotes(merge)));
      pairs.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    const Json level = {
        {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    Json post = level;
    post["trim_offsets"] = false;
    return with_parts(added_tokens(), split->normalizes ? Json({{"type", "NFC"}}) : Json(),
                      Json(pre_tokenizer(*split)), post_processor(post), level,
                      bpe(tokens_, nullptr, false, split->ignores_merges, std::move(pairs)));
  }

  Json sentencepiece() const {
    std::optional<Numbers> scores = file_.numbers("tokenizer.ggml.scores");
    if (!scores || scores->size() != tokens_.size())
      file_.fail("needs one score for each token in tokenizer.ggml.scores. Fix: download the file again");
    const bool gemma = file_.text("general.architecture").value_or("").starts_with("gemma");
    Texts tokens = tokens_;
    if (gemma) {
      // Gemma merges in the order of the vocabulary. Files spell its tokens of several spaces with spaces.
      for (std::size_t id = 0; id < tokens.size(); ++id) {
        (*scores)[id] = -static_cast<double>(id);
        if (is_spaces(tokens[id])) tokens[id] = repeated(kSpace, tokens[id].size());
      }
    }
    const bool prefix = !gemma && file_.flag("tokenizer.ggml.add_space_prefix").value_or(true);
    Json pairs = Json::array();
    for (auto& [left, right] : sentencepiece_merges(tokens, *scores))
      pairs.push_back({std::move(left), std::move(right)});
    const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
    Json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}};
    if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    const Json metaspace = {{"type", "Metaspace"},
                            {"replacement", kSpace},
                            {"prepend_scheme", prefix ? "first" : "never"},
                            {"split", false}};
    const Json split = {{"type", "Split"},
                        {"pattern", {{"String", " "}}},
                        {"behavior", "MergedWithPrevious"},
                        {"invert", false}};
    const Json unknown =
        special_.unknown ? Json(tokens[static_cast<std::size_t>(*special_.unknown)]) : Json();
    return with_parts(added_tokens(), gemma ? replace : Json(), gemma ? split : metaspace,
                      post_processor(nullptr), {{"type", "Sequence"}, {"decoders", decoders}},
                      bpe(tokens, unknown, true, false, std::move(pairs)));
  }

  Json config() const {
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"clean_up_tokenization_spaces", false},
                   {"add_bos_token", special_.add_bos},
                   {"add_eos_token", special_.add_eos}};
    const auto put = [&](const char* key, std::optional<std::int64_t> id) {
      if (id) config[key] = tokens_[static_cast<std::size_t>(*id)];
    };
    put("bos_token", special_.bos);
    put("eos_token", special_.eos);
    put("unk_token", special_.unknown);
    put("pad_token", special_.pad);
    if (const auto length =
            file_.integer(file_.text("general.architecture").value_or("") + ".context_length"))
      config["model_max_length"] = *length;
    if (const auto chat = file_.text("tokenizer.chat_template")) config["chat_template"] = *chat;
    return config;
  }

  Json generation_config() const {
    Json config = Json::object();
    if (special_.bos) config["bos_token_id"] = *special_.bos;
    const bool two = special_.end_of_turn && special_.eos && *special_.end_of_turn != *special_.eos;
    if (special_.eos)
      config["eos_token_id"] = two ? Json({*special_.eos, *special_.end_of_turn}) : Json(*special_.eos);
    if (special_.pad) config["pad_token_id"] = *special_.pad;
    return config;
  }

  const GgufFile& file_;
  const Texts& tokens_;
  SpecialTokens special_;
  const Integers* kinds_;
};

}  // namespace

TokenizerFiles read_tokenizer(const GgufFile& file) {
  const Texts* tokens = file.texts("tokenizer.ggml.tokens");
  if (tokens == nullptr) return {{}, {"the file has no vocabulary, so no tokenizer is written"}};
  return TokenizerReader(file, *tokens).read();
}

}  // namespace mantissa::gguf
