#include "mantissa/generate/eval/passages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string_view>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/model/network.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/rows/known_ids.h"
#include "mantissa/text/rows/readers.h"
#include "mantissa/text/rows/sources.h"

namespace mantissa::eval {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr const char* kWhiteSpace = " \t\r\n";

/// Splits the passage `text` at its last space. `where` is the file and the line.
Passage passage_of(std::string_view text, const tokenizer::Tokenizer& tokenizer, const std::string& where) {
  const std::size_t end = text.find_last_not_of(kWhiteSpace);
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  const std::size_t space = text.rfind(' ');
  const std::string_view before = text.substr(0, space == std::string_view::npos ? 0 : space);
  if (before.find_first_not_of(kWhiteSpace) == std::string_view::npos) {
    throw FileError(
        "{}: the passage has no two words, so there is no text before its last word. Fix: remove the line",
        where);
  }
  const Ids ids = tokenizer.encode(text), known = tokenizer.encode(before);
  const auto common = std::mismatch(ids.begin(), ids.end(), known.begin(), known.end()).first;
  Passage passage;
  passage.ids = tokens_before(tokenizer, before);
  passage.word = passage.ids.size() + static_cast<std::size_t>(common - ids.begin());
  passage.ids.insert(passage.ids.end(), ids.begin(), ids.end());
  if (passage.word == 0 || passage.word == passage.ids.size()) {
    throw FileError("{}: the tokenizer {} gives no tokens for {}. Fix: remove the line", where,
                    tokenizer.name(), passage.word == 0 ? "the text before the last word" : "the last word");
  }
  return passage;
}

void check_length(const Passage& passage, const model::ModelConfig& config, const std::string& where) {
  const std::size_t word = passage.ids.size() - passage.word;
  if (word > kMostWordTokens) {
    throw FileError("{}: the last word has {}, of at most {}. Fix: shorten it, or remove the line", where,
                    counted(word, "token"), kMostWordTokens);
  }
  // The last token is only predicted.
  const auto inputs = static_cast<std::int64_t>(passage.ids.size()) - 1;
  const bool fits = config.max_position_embeddings <= 0 || inputs <= config.max_position_embeddings;
  if (fits || config.network->depends_on_length(inputs)) return;  // dynamic RoPE is made for longer texts
  throw FileError(
      "{}: the passage has {} before its last one, but the model has {} positions "
      "(max_position_embeddings). Fix: shorten it, or remove the line",
      where, counted(inputs, "token"), config.max_position_embeddings);
}

}  // namespace

std::vector<std::int32_t> tokens_before(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  const Ids plain = tokenizer.encode(text), whole = tokenizer.encode_with_template(text);
  const auto begin = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  return begin == whole.end() ? Ids() : Ids(whole.begin(), begin);
}

std::vector<Passage> read_passages(const weights::ModelSource& source, const PassageFile& file) {
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer = data::tokenizer_of(source);
  if (tokenizer == nullptr) {
    throw ConfigError("--last-word {}: {}. Fix: use a model with its tokenizer, because words are text",
                      file.name, data::why_no_tokenizer(source));
  }
  const std::vector<std::string> names = text::expand_files({file.name});
  if (names.size() > 1)
    throw ConfigError("--last-word {}: matches {} files; give one", file.name, names.size());
  const std::int64_t most = file.limit > 0 ? file.limit : std::numeric_limits<std::int64_t>::max();
  std::vector<Passage> passages;
  for (const text::RowDocument& document : text::read_row_documents(names.front(), most)) {
    const std::string where = document.place.in(names.front());
    Passage passage = passage_of(document.text, *tokenizer, where);
    passage.place = document.place;
    text::check_known_ids(passage.ids, *tokenizer, source.config.vocab_size, where);
    check_length(passage, source.config, where);
    passages.push_back(std::move(passage));
  }
  if (passages.empty()) throw FileError("{}: contains no passages", names.front());
  return passages;
}

}  // namespace mantissa::eval
