#include "mantissa/text/tokenizer/model.h"

#include <fmt/format.h>

namespace mantissa::tokenizer {

Vocabulary Vocabulary::read(const JsonView& json) {
  if (!json.json().is_object()) json.fail("expected an object of tokens and their ids");
  Vocabulary vocabulary{StringMap(json.member_count()), {}};
  vocabulary.tokens.reserve(json.member_count());
  json.members([&](const std::string& token, const nlohmann::json& id) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostIds)) {
      json.fail(fmt::format("the id of \"{}\" is {}; ids are integers below {}", token, id.dump(), kMostIds));
    }
    const auto index = id.get<std::size_t>();
    vocabulary.ids.set(token, static_cast<std::int32_t>(index));
    if (vocabulary.tokens.size() <= index) vocabulary.tokens.resize(index + 1);
    vocabulary.tokens[index] = token;
  });
  if (vocabulary.ids.size() == json.member_count()) return vocabulary;
  // Of equal keys the last counts.
  for (std::optional<std::string>& token : vocabulary.tokens) token.reset();
  json.members([&](const std::string& token, const nlohmann::json& id) {
    const auto index = id.get<std::size_t>();
    if (vocabulary.ids.find(token) == static_cast<std::int32_t>(index)) vocabulary.tokens[index] = token;
  });
  return vocabulary;
}

std::vector<std::int32_t> byte_tokens(const StringMap& ids) {
  std::vector<std::int32_t> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.push_back(ids.find(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  return tokens;
}

std::unique_ptr<Model> read_model(const JsonView& json) {
  const std::optional<JsonView> named = json.find("type");
  // Old files do not name their model.
  const std::string type = named ? named->text() : json.find("merges") ? "BPE" : "";
  if (type == "BPE") return read_bpe(json);
  if (type == "Unigram") return read_unigram(json);
  if (type == "WordPiece") return read_word_piece(json);
  if (type == "WordLevel") return read_word_level(json);
  json.fail(fmt::format("the model type \"{}\" is not supported", type),
            "use a tokenizer of type BPE, Unigram, WordPiece or WordLevel");
}

}  // namespace mantissa::tokenizer
