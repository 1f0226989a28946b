// The tokenizer of an RWKV vocabulary: at each place of the text the longest token.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/text/tokenizer/python_literal.h"
#include "mantissa/text/tokenizer/read_file.h"
#include "mantissa/text/tokenizer/trie.h"

namespace mantissa::tokenizer {
namespace {

using Entries = std::vector<std::pair<std::string, std::int32_t>>;

constexpr std::int32_t kEndOfText = 0;  // ends a text; the vocabulary has no bytes for it

class RwkvTokenizer final : public Tokenizer {
 public:
  RwkvTokenizer(Entries entries, std::string name)
      : name_(std::move(name)), trie_(entries), tokens_(std::move(entries)) {
    std::ranges::sort(tokens_, {}, &Entries::value_type::second);
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3);
    while (!text.empty()) {
      const Trie::Match match = trie_.longest(text);  // every byte is a token
      ids.push_back(match.id);
      text.remove_prefix(match.length);
    }
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == kEndOfText) continue;
      const std::optional<std::string> token = token_of(ids[i]);
      if (!token) {
        throw ConfigError(
            "token id {} at position {} is not in the vocabulary of {} (ids 0 to {}). Fix: check that the "
            "ids come from this tokenizer.",
            ids[i], i, name_, vocabulary() - 1);
      }
      text += *token;
    }
    return text;
  }

  std::int64_t vocabulary() const override { return std::int64_t{tokens_.back().second} + 1; }
  bool known(std::int32_t id) const override { return id == kEndOfText || token_of(id).has_value(); }
  std::string name() const override { return name_; }
  std::int32_t separator() const override { return kEndOfText; }
  std::optional<std::int32_t> eos() const override { return kEndOfText; }
  bool special(std::int32_t id) const override { return id == kEndOfText; }

  std::optional<std::int32_t> id_of(std::string_view token) const override {
    const Trie::Match match = trie_.longest(token);
    return match.id >= 0 && match.length == token.size() ? std::optional(match.id) : std::nullopt;
  }
  std::optional<std::string> token_of(std::int32_t id) const override {
    const auto found = std::ranges::lower_bound(tokens_, id, {}, &Entries::value_type::second);
    return found != tokens_.end() && found->second == id ? std::optional(found->first) : std::nullopt;
  }

 private:
  std::string name_;
  Trie trie_;
  Entries tokens_;  // by id; not indexed by it, since a file decides how large ids are
};

template <class Number>
bool parse(std::string_view word, Number& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

/// Reads a line: id, Python literal, number of bytes. Returns a message for a wrong line, or "".
std::string read_line(std::string_view line, Entries& entries) {
  constexpr std::int32_t kMostIds = 1 << 24;
  const std::size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return "is not an id, a Python string and its length";
  std::int32_t id = 0;
  if (!parse(line.substr(0, first), id) || id < 1 || id >= kMostIds)
    return fmt::format("does not begin with an id of 1 to {}", kMostIds - 1);
  const std::optional<std::string> bytes = bytes_of_literal(line.substr(first + 1, last - first - 1));
  if (!bytes) return "has no Python string or bytes, such as 'a' or b'\\xff', after the id";
  std::size_t length = 0;
  if (!parse(line.substr(last + 1), length) || length != bytes->size() || length == 0)
    return fmt::format("ends with a length other than that of its token, {} bytes", bytes->size());
  entries.emplace_back(*bytes, id);
  return "";
}

[[noreturn]] void refuse_vocabulary(const std::string& file, const std::string& what) {
  throw FileError("{}: {}. Fix: give an RWKV vocabulary such as rwkv_vocab_v20230424.txt.", file, what);
}

/// Throws if an id or a token occurs twice, or if a byte is not a token.
void check_entries(Entries entries, const std::string& file) {
  std::sort(entries.begin(), entries.end());
  std::array<bool, 256> bytes = {};
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& [token, id] = entries[i];
    if (i > 0 && token == entries[i - 1].first)
      refuse_vocabulary(file, fmt::format("ids {} and {} are the same token", entries[i - 1].second, id));
    if (token.size() == 1) bytes[static_cast<unsigned char>(token[0])] = true;
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end())
    refuse_vocabulary(file, fmt::format("id {} occurs twice", *twice));
  const auto missing = std::find(bytes.begin(), bytes.end(), false);
  if (missing != bytes.end())
    refuse_vocabulary(file, fmt::format("has no token for the byte 0x{:02x}", missing - bytes.begin()));
}

}  // namespace

std::unique_ptr<Tokenizer> read_rwkv_tokenizer(const std::filesystem::path& file) {
  return parse_rwkv_tokenizer(read_tokenizer_file(file), file.string());
}

std::unique_ptr<Tokenizer> parse_rwkv_tokenizer(const std::string& text, const std::string& name) {
  Entries entries;
  std::size_t number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string fault = read_line(line, entries);
    if (!fault.empty()) refuse_vocabulary(name, fmt::format("line {} {}", number, fault));
  }
  check_entries(entries, name);
  return std::make_unique<RwkvTokenizer>(std::move(entries), name);
}

}  // namespace mantissa::tokenizer
