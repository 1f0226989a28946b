// WordLevel and WordPiece: words, and the longest parts of words, that are in the vocabulary.
#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/model.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

class WordModel : public Model {
 public:
  explicit WordModel(const JsonView& json)
      : vocabulary_(Vocabulary::read(json.at("vocab"))), unknown_(json.at("unk_token").text()) {}

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    return vocabulary_.ids.find(token);
  }
  std::size_t size() const override { return vocabulary_.ids.size(); }
  const std::vector<std::optional<std::string>>& tokens() const override { return vocabulary_.tokens; }

 protected:
  std::int32_t unknown() const {
    const std::optional<std::int32_t> id = id_of(unknown_);
    if (!id) {
      throw ConfigError(
          "the text has a word that is not in the tokenizer's vocabulary, and neither is its "
          "unknown token \"{}\". Fix: add this token to the file.",
          unknown_);
    }
    return *id;
  }

 private:
  Vocabulary vocabulary_;
  std::string unknown_;
};

class WordLevel final : public WordModel {
 public:
  using WordModel::WordModel;
  void encode(std::string_view word, ModelMemory&, std::vector<std::int32_t>& ids) const override {
    const std::optional<std::int32_t> id = id_of(word);
    ids.push_back(id ? *id : unknown());
  }
};

class WordPiece final : public WordModel {
 public:
  explicit WordPiece(const JsonView& json)
      : WordModel(json),
        prefix_(json.at("continuing_subword_prefix").text()),
        most_(static_cast<std::size_t>(json.at("max_input_chars_per_word").integer(1 << 30))) {}

  void encode(std::string_view word, ModelMemory&, std::vector<std::int32_t>& ids) const override {
    const std::size_t before = ids.size();
    if (!append_parts(word, ids)) {
      ids.resize(before);
      ids.push_back(unknown());
    }
  }

 private:
  bool append_parts(std::string_view word, std::vector<std::int32_t>& ids) const {
    std::size_t characters = 0;
    for (std::size_t at = 0; at < word.size(); at += utf8_length(word[at])) {
      if (++characters > most_) return false;
    }
    std::string part;
    for (std::size_t start = 0; start < word.size();) {
      part = start > 0 ? prefix_ : "";
      const std::size_t prefix = part.size();
      part += word.substr(start);
      std::optional<std::int32_t> id;
      while (part.size() > prefix && !(id = id_of(part))) {
        do part.pop_back();
        while (part.size() > prefix &&
               (static_cast<unsigned char>(word[start + part.size() - prefix]) & 0xC0) == 0x80);
      }
      if (!id) return false;
      ids.push_back(*id);
      start += part.size() - prefix;
    }
    return true;
  }

  std::string prefix_;
  std::size_t most_;
};

}  // namespace

std::unique_ptr<Model> read_word_piece(const JsonView& json) {
  return std::make_unique<WordPiece>(json);
}
std::unique_ptr<Model> read_word_level(const JsonView& json) {
  return std::make_unique<WordLevel>(json);
}

}  // namespace mantissa::tokenizer
