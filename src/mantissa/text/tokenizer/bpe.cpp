// Byte-pair encoding: the pair of neighbours with the lowest rank is merged, the leftmost first, until none
// is left.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/byte_level.h"
#include "mantissa/text/tokenizer/model.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

struct Merge {
  std::int32_t rank, id;
};

constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();

class Bpe final : public Model {
 public:
  explicit Bpe(const JsonView& json);

  void encode(std::string_view word, ModelMemory& memory, std::vector<std::int32_t>& ids) const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override {
    return vocabulary_.ids.find(token);
  }
  std::size_t size() const override { return vocabulary_.ids.size(); }
  const std::vector<std::optional<std::string>>& tokens() const override { return vocabulary_.tokens; }
  bool take_bytes() override;

 private:
  void read_merges(const JsonView& json);
  void encode_part(std::string_view part, ModelMemory& memory, std::vector<std::int32_t>& ids) const;
  void add_characters(std::string_view part, std::vector<std::int32_t>& ids) const;
  void merge(std::vector<std::int32_t>& ids, ModelMemory& memory) const;
  void merge_few(std::vector<std::int32_t>& ids, ModelMemory& memory) const;
  void merge_many(std::vector<std::int32_t>& ids, ModelMemory& memory) const;
  std::int32_t character_id(char32_t point) const {
    if (point < characters_.size()) return characters_[point];
    const std::int32_t* id = rare_characters_.find(point);
    return id ? *id : -1;
  }

  Vocabulary vocabulary_;
  IntegerMap<Merge> merges_;
  std::vector<std::int32_t> merged_;  // the id of the merge of each rank
  std::optional<std::int32_t> unknown_;
  std::string prefix_, suffix_;
  bool fuse_unknown_, ignore_merges_;
  std::vector<std::int32_t> bytes_;       // "<0x00>" …, empty without byte_fallback
  std::vector<std::int32_t> characters_;  // ids of code points below its size, -1: none
  IntegerMap<std::int32_t> rare_characters_;
  IntegerMap<bool> joints_;  // pairs of code points between which a merge can happen
  StringMap words_;          // as bytes, after take_bytes
  bool as_bytes_ = false;
  // No merge has the unknown token or a byte token, whose texts are not their spelling; then a queue entry
  // whose pair has changed never has the id of the new pair, and merge_few gives what merge_many gives.
  bool few_is_same_ = true;
};

Bpe::Bpe(const JsonView& json)
    : vocabulary_(Vocabulary::read(json.at("vocab"))),
      prefix_(json.text_or("continuing_subword_prefix", "")),
      suffix_(json.text_or("end_of_word_suffix", "")),
      fuse_unknown_(json.boolean_or("fuse_unk", false)),
      ignore_merges_(json.boolean_or("ignore_merges", false)),
      characters_(0x3000, -1) {
  if (const std::optional<JsonView> dropout = json.find("dropout")) {
    if (!dropout->json().is_number() || dropout->json().get<double>() != 0)
      dropout->fail("dropout makes ids random", "set dropout to null");
  }
  if (const std::optional<JsonView> unknown = json.find("unk_token")) {
    unknown_ = vocabulary_.ids.find(unknown->text());
    if (!unknown_) unknown->fail(fmt::format("the token \"{}\" is not in the vocabulary", unknown->text()));
  }
  if (json.boolean_or("byte_fallback", false)) bytes_ = byte_tokens(vocabulary_.ids);
  std::size_t ids = 0;
  for (const std::optional<std::string>& token : vocabulary_.tokens) {
    if (!token) continue;
    ++ids;
    if (token->empty() || utf8_length((*token)[0]) != token->size()) continue;
    std::size_t at = 0;
    const char32_t point = next_code_point(*token, at);
    const std::int32_t id = *vocabulary_.ids.find(*token);
    if (point < characters_.size())
      characters_[point] = id;
    else
      rare_characters_.set(point, id);
  }
  if (ids != vocabulary_.ids.size()) json.at("vocab").fail("two tokens have the same id");
  read_merges(json.at("merges"));
}

void Bpe::read_merges(const JsonView& json) {
  if (!json.json().is_array()) json.fail("expected an array of merges");
  merges_ = IntegerMap<Merge>(json.json().size());
  joints_ = IntegerMap<bool>(1024);
  std::vector<bool> no_text(vocabulary_.tokens.size());  // tokens whose text is not their spelling
  for (const std::int32_t byte : bytes_) {
    if (byte >= 0) no_text[static_cast<std::size_t>(byte)] = true;
  }
  if (unknown_) no_text[static_cast<std::size_t>(*unknown_)] = true;
  std::int32_t rank = 0;
  std::string left, right;
  const auto fail = [&](std::size_t index, const std::string& message) {
    json.fail(fmt::format("merge {}: {}", index, message));
  };
  std::size_t index = 0;
  for (const nlohmann::json& merge : json.json()) {
    const std::size_t at = index++;
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos)
        fail(at, fmt::format("\"{}\" is not two tokens with a space between", text));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else {
      fail(at, "expected two tokens");
    }
    if (right.size() < prefix_.size())
      fail(at, fmt::format("\"{}\" lacks the prefix \"{}\"", right, prefix_));
    const std::string whole = left + right.substr(prefix_.size());
    const auto id = [&](const std::string& token) {
      const std::optional<std::int32_t> found = vocabulary_.ids.find(token);
      if (!found) fail(at, fmt::format("the token \"{}\" is not in the vocabulary", token));
      return *found;
    };
    const std::int32_t left_id = id(left), right_id = id(right);
    merges_.set(pair_key(left_id, right_id), {rank++, id(whole)});
    merged_.push_back(id(whole));
    const auto is_text = [&](std::int32_t token) { return !no_text[static_cast<std::size_t>(token)]; };
    few_is_same_ = few_is_same_ && is_text(left_id) && is_text(right_id);
    if (left.empty() || right.empty()) continue;
    std::size_t last = left.size() - 1, first = 0;
    while ((static_cast<unsigned char>(left[last]) & 0xC0) == 0x80) --last;
    const char32_t before = next_code_point(left, last), after = next_code_point(right, first);
    joints_.set(std::uint64_t{before} << 32 | after, true);
  }
}

bool Bpe::take_bytes() {
  if (!prefix_.empty() || !suffix_.empty()) return false;
  for (const char32_t character : byte_characters()) {
    if (character_id(character) < 0) return false;
  }
  if (ignore_merges_) {
    for (std::size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      if (!vocabulary_.tokens[id]) continue;
      if (const std::optional<std::string> word = from_byte_characters(*vocabulary_.tokens[id]))
        words_.set(*word, static_cast<std::int32_t>(id));
    }
  }
  as_bytes_ = true;
  return true;
}

void Bpe::encode(std::string_view word, ModelMemory& memory, std::vector<std::int32_t>& ids) const {
  if (ignore_merges_) {
    if (const std::optional<std::int32_t> id = (as_bytes_ ? words_ : vocabulary_.ids).find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  if (as_bytes_ || !prefix_.empty() || !suffix_.empty()) return encode_part(word, memory, ids);
  // A word is cut where no merge can happen: merges on one side do not change the other. So a text that is
  // one word for the file, as with Llama 2, costs no more than its words.
  std::size_t start = 0;
  char32_t before = 0;
  bool known_before = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t here = at;
    const char32_t point = next_code_point(word, at);
    const bool known = character_id(point) >= 0;
    if (known && known_before && !joints_.find(std::uint64_t{before} << 32 | point)) {
      encode_part(word.substr(start, here - start), memory, ids);
      start = here;
    }
    before = point;
    known_before = known;
  }
  encode_part(word.substr(start), memory, ids);
}

void Bpe::encode_part(std::string_view part, ModelMemory& memory, std::vector<std::int32_t>& ids) const {
  if (memory.cache.append(part, ids)) return;
  std::vector<std::int32_t>& word = memory.ids;
  word.clear();
  if (as_bytes_) {
    for (const char byte : part)
      word.push_back(characters_[byte_characters()[static_cast<unsigned char>(byte)]]);
  } else {
    add_characters(part, word);
  }
  merge(word, memory);
  memory.cache.keep(part, word);
  ids.insert(ids.end(), word.begin(), word.end());
}

// Appends the ids of the characters. One that is not in the vocabulary becomes its bytes, or the unknown
// token. As in `tokenizers`, an unknown token waits until the next known character, so that bytes come before
// it.
void Bpe::add_characters(std::string_view part, std::vector<std::int32_t>& ids) const {
  bool waiting = false;
  std::string decorated;
  for (std::size_t at = 0; at < part.size();) {
    const std::size_t start = at;
    const char32_t point = next_code_point(part, at);
    std::string_view text = part.substr(start, at - start);
    std::int32_t id = -1;
    const bool prefixed = start > 0 && !prefix_.empty(), suffixed = at == part.size() && !suffix_.empty();
    if (prefixed || suffixed) {
      decorated = (prefixed ? prefix_ : "") + std::string(text) + (suffixed ? suffix_ : "");
      text = decorated;
      id = vocabulary_.ids.find(text).value_or(-1);
    } else {
      id = character_id(point);
    }
    if (id >= 0) {
      if (waiting) ids.push_back(*unknown_);
      waiting = false;
      ids.push_back(id);
      continue;
    }
    const auto has_token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; };
    if (!bytes_.empty() && std::all_of(text.begin(), text.end(), has_token)) {
      for (const char byte : text) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
      continue;
    }
    if (!unknown_) continue;
    if (waiting && !fuse_unknown_) ids.push_back(*unknown_);
    waiting = true;
  }
  if (waiting) ids.push_back(*unknown_);
}

void Bpe::merge(std::vector<std::int32_t>& ids, ModelMemory& memory) const {
  constexpr std::size_t kFew = 32;  // below this, looking at all pairs is faster than a queue
  if (ids.size() < 2) return;
  if (ids.size() <= kFew && few_is_same_) return merge_few(ids, memory);
  merge_many(ids, memory);
}

void Bpe::merge_few(std::vector<std::int32_t>& ids, ModelMemory& memory) const {
  const auto rank = [&](std::size_t i) {
    const Merge* merge = merges_.find(pair_key(ids[i], ids[i + 1]));
    return merge ? merge->rank : kNoRank;
  };
  std::vector<std::int32_t>& ranks = memory.ranks;
  ranks.resize(ids.size() - 1);
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = rank(i);
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoRank) return;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merged_[static_cast<std::size_t>(*best)];
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(best);
    if (i > 0) ranks[i - 1] = rank(i - 1);
    if (i < ranks.size()) ranks[i] = rank(i);
  }
}

void Bpe::merge_many(std::vector<std::int32_t>& ids, ModelMemory& memory) const {
  using Symbol = ModelMemory::Symbol;
  std::vector<Symbol>& symbols = memory.symbols;
  std::vector<std::uint64_t>& queue = memory.queue;  // rank, position
  symbols.clear();
  queue.clear();
  const auto count = static_cast<std::int32_t>(ids.size());
  for (std::int32_t i = 0; i < count; ++i)
    symbols.push_back({ids[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, true});
  const auto symbol = [&](std::int32_t at) -> Symbol& { return symbols[static_cast<std::size_t>(at)]; };
  const auto lookup = [&](std::int32_t at) {
    const std::int32_t next = symbol(at).next;
    return next < 0 ? nullptr : merges_.find(pair_key(symbol(at).id, symbol(next).id));
  };
  const auto entry = [](const Merge& merge, std::int32_t at) {
    return static_cast<std::uint64_t>(merge.rank) << 32 | static_cast<std::uint32_t>(at);
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) {
    if (const Merge* merge = lookup(i)) queue.push_back(entry(*merge, i));
  }
  const std::greater<> least_first;
  std::make_heap(queue.begin(), queue.end(), least_first);
  const auto push = [&](std::int32_t at) {
    if (at < 0) return;
    if (const Merge* merge = lookup(at)) {
      queue.push_back(entry(*merge, at));
      std::push_heap(queue.begin(), queue.end(), least_first);
    }
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), least_first);
    const std::uint64_t top = queue.back();
    queue.pop_back();
    const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFFU);
    Symbol& left = symbol(at);
    if (!left.alive) continue;
    const Merge* merge = lookup(at);
    const std::int32_t merged = merged_[top >> 32];
    if (!merge || merge->id != merged) continue;  // the pair has changed since
    Symbol& right = symbol(left.next);
    left.id = merged;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = at;
    push(left.previous);
    push(at);
  }
  ids.clear();
  for (const Symbol& each : symbols) {
    if (each.alive) ids.push_back(each.id);
  }
}

}  // namespace

std::unique_ptr<Model> read_bpe(const JsonView& json) {
  return std::make_unique<Bpe>(json);
}

}  // namespace mantissa::tokenizer
