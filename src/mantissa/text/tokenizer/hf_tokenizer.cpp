// A tokenizer of a Hugging Face tokenizer.json: added tokens, normalizer, pre-tokenizer, model, template and
// decoder.
#include <mutex>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/text/tokenizer/added_tokens.h"
#include "mantissa/text/tokenizer/decoders.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/model.h"
#include "mantissa/text/tokenizer/normalizers.h"
#include "mantissa/text/tokenizer/post_processors.h"
#include "mantissa/text/tokenizer/pre_tokenizers.h"
#include "mantissa/text/tokenizer/read_file.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

namespace fs = std::filesystem;

// What one thread needs.
struct Memory {
  MatchMemory match;
  ModelMemory model;
};

// Memory that threads borrow, so that encode is const, and what one call learns the next one uses.
class MemoryPool {
 public:
  class Loan {
   public:
    explicit Loan(MemoryPool& pool) : pool_(pool), memory_(pool.take()) {}
    Loan(const Loan&) = delete;
    ~Loan() { pool_.put(std::move(memory_)); }
    Memory& operator*() const { return *memory_; }

   private:
    MemoryPool& pool_;
    std::unique_ptr<Memory> memory_;
  };

 private:
  std::unique_ptr<Memory> take() {
    {
      const std::scoped_lock lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Memory> memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    return std::make_unique<Memory>();
  }
  void put(std::unique_ptr<Memory> memory) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(memory));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_;
};

class HfTokenizer final : public Tokenizer {
 public:
  HfTokenizer(const JsonView& json, std::string name, const std::optional<JsonView>& config);

  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::vector<std::int32_t> encode_with_template(std::string_view text) const override {
    return post_processor_.apply(encode(text));
  }
  std::string decode(std::span<const std::int32_t> ids) const override {
    return decode(ids, StrayBytes::replaced);
  }
  std::size_t count_bytes(std::span<const std::int32_t> ids) const override {
    return decode(ids, StrayBytes::counted).size();
  }
  std::unique_ptr<TextDecoder> text_decoder() const override;
  std::int64_t vocabulary() const override { return vocabulary_; }
  bool known(std::int32_t id) const override { return spelling(id) != nullptr; }
  std::string name() const override { return name_; }
  std::int32_t separator() const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override;
  std::optional<std::string> token_of(std::int32_t id) const override;
  std::optional<std::int32_t> bos() const override { return bos_; }
  std::optional<std::int32_t> eos() const override { return eos_; }
  bool special(std::int32_t id) const override {
    const auto token = added_.by_id().find(id);
    return token != added_.by_id().end() && token->second.special;
  }

 private:
  std::string decode(std::span<const std::int32_t> ids, StrayBytes stray) const;
  std::optional<std::int32_t> named_token(const JsonView& config, std::string_view key) const;
  const std::string* spelling(std::int32_t id) const;
  class Text;

  std::string name_;
  std::unique_ptr<Normalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<Model> model_;
  AddedTokens added_;
  std::int64_t vocabulary_ = 0;
  PostProcessor post_processor_;
  std::unique_ptr<Decoder> decoder_;
  std::optional<std::int32_t> bos_, eos_;
  mutable MemoryPool pool_;
};

std::unique_ptr<Normalizer> normalizer_of(const JsonView& json) {
  const std::optional<JsonView> part = json.find("normalizer");
  return part ? read_normalizer(*part) : nullptr;
}

HfTokenizer::HfTokenizer(const JsonView& json, std::string name, const std::optional<JsonView>& config)
    : name_(std::move(name)),
      normalizer_(normalizer_of(json)),
      model_(read_model(json.at("model"))),
      added_(json.find("added_tokens"), *model_, normalizer_.get()) {
  if (const std::optional<JsonView> part = json.find("pre_tokenizer")) {
    pre_tokenizer_ = read_pre_tokenizer(*part);
    // Bytes need not be written as characters if only the model sees them.
    if (model_->take_bytes() && !pre_tokenizer_->leave_bytes()) model_ = read_model(json.at("model"));
  }
  vocabulary_ = static_cast<std::int64_t>(model_->tokens().size());
  if (!added_.by_id().empty())
    vocabulary_ = std::max<std::int64_t>(vocabulary_, added_.by_id().rbegin()->first + 1);
  if (const std::optional<JsonView> part = json.find("post_processor"))
    post_processor_ = PostProcessor(*part, vocabulary_);
  if (const std::optional<JsonView> part = json.find("decoder")) decoder_ = read_decoder(*part);
  if (config) {
    bos_ = named_token(*config, "bos_token");
    eos_ = named_token(*config, "eos_token");
  }
}

// A token of tokenizer_config.json: its spelling, or an object with it.
std::optional<std::int32_t> HfTokenizer::named_token(const JsonView& config, std::string_view key) const {
  const std::optional<JsonView> value = config.find(key);
  if (!value) return std::nullopt;
  return id_of(value->json().is_object() ? value->at("content").text() : value->text());
}

std::vector<std::int32_t> HfTokenizer::encode(std::string_view bytes) const {
  const MemoryPool::Loan loan(pool_);
  Memory& memory = *loan;
  std::string repaired;
  const std::string_view text = repair_utf8(bytes, repaired);
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  const auto word = [&](const Piece& piece) { model_->encode(piece.text, memory.model, ids); };
  const auto normalized = [&](const AddedToken* token, const Piece& piece) {
    if (token)
      ids.push_back(token->id);
    else if (pre_tokenizer_)
      pre_tokenizer_->split(piece, memory.match, word);
    else
      word(piece);
  };
  const auto raw = [&](const AddedToken* token, const Piece& piece) {
    if (token) {
      ids.push_back(token->id);
    } else if (normalizer_) {
      OwnedPiece owned{std::string(piece.text), piece.origin};
      normalizer_->apply(owned, memory.match);
      added_.normalized().split(owned.view(), memory.match, normalized);
    } else {
      added_.normalized().split(piece, memory.match, normalized);
    }
  };
  added_.raw().split({text, text.empty() ? 0 : utf8_length(text[0])}, memory.match, raw);
  return ids;
}

const std::string* HfTokenizer::spelling(std::int32_t id) const {
  const auto added = added_.by_id().find(id);
  if (added != added_.by_id().end())
    return added->second.normalized ? &added->second.pattern : &added->second.content;
  const auto& tokens = model_->tokens();
  if (id < 0 || static_cast<std::size_t>(id) >= tokens.size()) return nullptr;
  const std::optional<std::string>& token = tokens[static_cast<std::size_t>(id)];
  return token ? &*token : nullptr;
}

class HfTokenizer::Text final : public TextDecoder {
 public:
  Text(const HfTokenizer& tokenizer, StrayBytes stray) : tokenizer_(tokenizer) {
    if (tokenizer.decoder_) decoding_ = tokenizer.decoder_->begin(stray);
  }
  void push(std::int32_t id, std::string& text) override {
    const std::string* token = tokenizer_.spelling(id);
    if (!token) {
      throw ConfigError(
          "token id {} at position {} is not in the vocabulary of {} (ids 0 to {}). Fix: check "
          "that the ids come from this tokenizer.",
          id, count_, tokenizer_.name_, tokenizer_.vocabulary_ - 1);
    }
    if (decoding_)
      decoding_->push({*token}, [&](const TokenPart& part) { text += part.text; });
    else
      text.append(count_ > 0 ? " " : "").append(*token);
    ++count_;
  }
  void finish(std::string& text) override {
    if (decoding_) decoding_->finish([&](const TokenPart& part) { text += part.text; });
  }

 private:
  const HfTokenizer& tokenizer_;
  std::unique_ptr<Decoding> decoding_;
  std::size_t count_ = 0;
};

std::unique_ptr<TextDecoder> HfTokenizer::text_decoder() const {
  return std::make_unique<Text>(*this, StrayBytes::replaced);
}

std::string HfTokenizer::decode(std::span<const std::int32_t> ids, StrayBytes stray) const {
  std::string text;
  Text decoder(*this, stray);
  for (const std::int32_t id : ids) decoder.push(id, text);
  decoder.finish(text);
  return text;
}

std::int32_t HfTokenizer::separator() const {
  if (eos_) return *eos_;
  for (const char* name : {"<|endoftext|>", "</s>", "<|end_of_text|>", "<|im_end|>", "<eos>", "[SEP]"}) {
    if (const std::optional<std::int32_t> id = id_of(name)) return *id;
  }
  throw ConfigError(
      "{} has no token that ends a document. Fix: name it as \"eos_token\" in a tokenizer_config.json beside "
      "the file.",
      name_);
}

std::optional<std::int32_t> HfTokenizer::id_of(std::string_view token) const {
  const std::optional<std::int32_t> id = added_.id_of(token);
  return id ? id : model_->id_of(token);
}

std::optional<std::string> HfTokenizer::token_of(std::int32_t id) const {
  const std::string* token = spelling(id);
  return token ? std::optional(*token) : std::nullopt;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_hf_tokenizer(const std::string& text, const std::string& name,
                                              const std::string& settings, const std::string& settings_name) {
  if (is_byte_tokenizer(text)) return byte_tokenizer();
  const JsonDocument json = parse_document(text, name);
  if (settings.empty()) return std::make_unique<HfTokenizer>(JsonView(json, name), name, std::nullopt);
  const nlohmann::json config = parse_json(settings, settings_name);
  return std::make_unique<HfTokenizer>(JsonView(json, name), name, JsonView(config, settings_name));
}

std::unique_ptr<Tokenizer> read_hf_tokenizer(const fs::path& file) {
  const std::string text = read_tokenizer_file(file);
  const fs::path settings = file.parent_path() / "tokenizer_config.json";
  return parse_hf_tokenizer(text, file.string(), disk::exists(settings) ? read_tokenizer_file(settings) : "",
                            settings.string());
}

}  // namespace mantissa::tokenizer
