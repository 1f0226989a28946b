// Unigram: the segmentation with the highest sum of scores.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/model.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

constexpr double kUnknownPenalty = 10;  // below the lowest score

class Unigram final : public Model {
 public:
  explicit Unigram(const JsonView& json);

  void encode(std::string_view word, ModelMemory& memory, std::vector<std::int32_t>& ids) const override;
  std::optional<std::int32_t> id_of(std::string_view token) const override { return ids_.find(token); }
  std::size_t size() const override { return tokens_.size(); }
  const std::vector<std::optional<std::string>>& tokens() const override { return tokens_; }

 private:
  void add(std::string_view token, std::int32_t id);
  void best_path(std::string_view word, std::vector<ModelMemory::PathNode>& path) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::vector<std::optional<std::string>> tokens_;
  std::vector<double> scores_;
  StringMap ids_;
  double lowest_ = std::numeric_limits<double>::infinity();
  std::optional<std::int32_t> unknown_;
  std::vector<std::int32_t> bytes_;  // "<0x00>" …, empty without byte_fallback

  // A trie of the tokens: node and byte to the next node. Node 0 is the root.
  IntegerMap<std::uint32_t> next_;
  std::vector<std::int32_t> leaves_{-1};  // the id of the token that ends at a node
};

Unigram::Unigram(const JsonView& json) {
  const JsonView vocabulary = json.at("vocab");
  if (!vocabulary.json().is_array() || vocabulary.json().size() > static_cast<std::size_t>(kMostIds))
    vocabulary.fail("expected an array of tokens with their scores");
  const std::size_t count = vocabulary.json().size();
  ids_ = StringMap(count);
  next_ = IntegerMap<std::uint32_t>(count * 4);
  for (const nlohmann::json& entry : vocabulary.json()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      vocabulary.fail(fmt::format("entry {}: expected a token and its score", tokens_.size()));
    const auto& token = entry[0].get_ref<const std::string&>();
    const auto id = static_cast<std::int32_t>(tokens_.size());
    tokens_.push_back(token);
    scores_.push_back(entry[1].get<double>());
    lowest_ = std::min(lowest_, scores_.back());
    ids_.set(token, id);
    add(token, id);
  }
  if (const std::optional<JsonView> unknown = json.find("unk_id")) {
    if (tokens_.empty()) unknown->fail("the vocabulary is empty");
    unknown_ = static_cast<std::int32_t>(unknown->integer(static_cast<std::int64_t>(count) - 1));
  }
  if (json.boolean_or("byte_fallback", false)) bytes_ = byte_tokens(ids_);
}

void Unigram::add(std::string_view token, std::int32_t id) {
  std::uint32_t node = 0;
  for (const char c : token) {
    const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
    if (const std::uint32_t* found = next_.find(key)) {
      node = *found;
      continue;
    }
    node = static_cast<std::uint32_t>(leaves_.size());
    leaves_.push_back(-1);
    next_.set(key, node);
  }
  if (!token.empty()) leaves_[node] = id;
}

// Fills path[end] with the best last token of word[0, end), by dynamic programming from the left. Of equal
// sums the first found stays.
void Unigram::best_path(std::string_view word, std::vector<ModelMemory::PathNode>& path) const {
  path.assign(word.size() + 1, {0, -1, 0});
  const auto offer = [&](std::size_t from, std::size_t to, std::int32_t id, double score) {
    ModelMemory::PathNode& node = path[to];
    if (node.from >= 0 && score <= node.score) return;
    node = {score, static_cast<std::int64_t>(from), id};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t character = utf8_length(word[at]);
    const double before = path[at].score;
    bool alone = false;  // a token is this character
    std::uint32_t node = 0;
    for (std::size_t end = at; end < word.size();) {
      const std::uint32_t* next =
          next_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(word[end]));
      if (!next) break;
      node = *next;
      ++end;
      const std::int32_t id = leaves_[node];
      if (id < 0) continue;
      offer(at, end, id, scores_[static_cast<std::size_t>(id)] + before);
      alone = alone || end - at == character;
    }
    if (!alone) {
      const double score = lowest_ - kUnknownPenalty + before;
      const ModelMemory::PathNode& node = path[at + character];
      const bool needed = node.from < 0 || score > node.score;
      if (needed && !unknown_) {
        throw ConfigError(
            "the tokenizer cannot encode \"{}\": it has no token for it and no unknown token. "
            "Fix: set model.unk_id.",
            word.substr(at, character));
      }
      if (needed) offer(at, at + character, *unknown_, score);
    }
    at += character;
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  if (const std::optional<std::int32_t> id = ids_.find(text)) {
    ids.push_back(*id);
    return;
  }
  const auto has_token = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)] >= 0; };
  if (!bytes_.empty() && std::all_of(text.begin(), text.end(), has_token)) {
    for (const char byte : text) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    return;
  }
  ids.push_back(*unknown_);
}

void Unigram::encode(std::string_view word, ModelMemory& memory, std::vector<std::int32_t>& ids) const {
  if (memory.cache.append(word, ids)) return;
  std::vector<ModelMemory::PathNode>& path = memory.path;
  best_path(word, path);
  // Backwards: the ends of the tokens, in place of their nodes.
  std::vector<std::int32_t>& ends = memory.ranks;
  ends.clear();
  for (std::size_t end = word.size(); end > 0; end = static_cast<std::size_t>(path[end].from))
    ends.push_back(static_cast<std::int32_t>(end));
  std::vector<std::int32_t>& found = memory.ids;
  found.clear();
  std::size_t start = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    auto to = static_cast<std::size_t>(*end);
    if (path[to].id != unknown_) {
      found.push_back(path[to].id);
      start = to;
      continue;
    }
    // Neighbouring unknown characters are one.
    while (end + 1 != ends.rend() && path[static_cast<std::size_t>(*(end + 1))].id == unknown_) {
      ++end;
      to = static_cast<std::size_t>(*end);
    }
    append_unknown(word.substr(start, to - start), found);
    start = to;
  }
  memory.cache.keep(word, found);
  ids.insert(ids.end(), found.begin(), found.end());
}

}  // namespace

std::unique_ptr<Model> read_unigram(const JsonView& json) {
  return std::make_unique<Unigram>(json);
}

}  // namespace mantissa::tokenizer
