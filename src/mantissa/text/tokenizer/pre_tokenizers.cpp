#include "mantissa/text/tokenizer/pre_tokenizers.h"

#include <fmt/format.h>

#include <optional>

#include "mantissa/text/tokenizer/byte_level.h"
#include "mantissa/text/tokenizer/normalizers.h"
#include "mantissa/text/tokenizer/onig_classes.h"
#include "mantissa/text/tokenizer/onig_syntax.h"
#include "mantissa/text/tokenizer/unicode.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// The expression of GPT-2, which ByteLevel uses.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

void split_by_pattern(const Piece& piece, const Pattern& pattern, bool invert, Behavior behavior,
                      MatchMemory& memory, PieceSink sink) {
  if (behavior == Behavior::kIsolated) {  // the common case: no list
    std::size_t done = 0;
    pattern.for_each(piece.text, memory, [&](std::size_t start, std::size_t end) {
      if (done != start) sink(piece.part(done, start));
      if (start != end) sink(piece.part(start, end));
      done = end;
    });
    if (done != piece.text.size()) sink(piece.part(done, piece.text.size()));
    return;
  }
  Segments segments(piece.text.size());
  pattern.for_each(piece.text, memory,
                   [&](std::size_t start, std::size_t end) { segments.delimiter(start, end); });
  emit_segments(piece, segments.finish(invert), behavior, sink);
}

template <class Is>
void split_by_character(const Piece& piece, const Is& is, Behavior behavior, PieceSink sink) {
  Segments segments(piece.text.size());
  for (std::size_t at = 0; at < piece.text.size();) {
    const std::size_t start = at;
    if (is(next_code_point(piece.text, at))) segments.delimiter(start, at);
  }
  emit_segments(piece, segments.finish(false), behavior, sink);
}

struct ByteLevel final : PreTokenizer {
  bool prefix_space, write_characters = true;
  std::optional<Pattern> pattern;
  void split(const Piece& whole, MatchMemory& memory, PieceSink sink) const override {
    OwnedPiece prefixed;
    Piece piece = whole;
    if (prefix_space && !whole.text.starts_with(' ')) {
      prefixed = {fmt::format(" {}", whole.text), whole.origin > 0 ? whole.origin + 1 : 0};
      piece = prefixed.view();
    }
    const auto write = [&](const Piece& word) {
      if (!write_characters) return sink(word);
      const std::string text = to_byte_characters(word.text);
      sink({text, to_byte_characters(word.text.substr(0, word.origin)).size()});
    };
    if (pattern)
      split_by_pattern(piece, *pattern, false, Behavior::kIsolated, memory, write);
    else
      write(piece);
  }
  bool leave_bytes() override {
    write_characters = false;
    return true;
  }
};

struct Split final : PreTokenizer {
  Pattern pattern;
  Behavior behavior;
  bool invert;
  Split(Pattern pattern, Behavior behavior, bool invert)
      : pattern(std::move(pattern)), behavior(behavior), invert(invert) {}
  void split(const Piece& piece, MatchMemory& memory, PieceSink sink) const override {
    split_by_pattern(piece, pattern, invert, behavior, memory, sink);
  }
};

struct Metaspace final : PreTokenizer {
  MetaspaceOptions options;
  std::string replacement;
  explicit Metaspace(const MetaspaceOptions& options) : options(options) {
    append_utf8(options.replacement, replacement);
  }
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    using Prepend = MetaspaceOptions::Prepend;
    OwnedPiece result;
    const bool begins = piece.text.starts_with(' ') || piece.text.starts_with(replacement);
    const bool wanted =
        options.prepend == Prepend::kAlways || (options.prepend == Prepend::kFirst && piece.origin > 0);
    if (!begins && wanted) result.text = replacement;
    if (piece.origin > 0) result.origin = result.text.size();
    for (std::size_t at = 0; at < piece.text.size(); ++at) {
      if (piece.text[at] == ' ')
        result.text += replacement;
      else
        result.text += piece.text[at];
      if (at < piece.origin) result.origin = result.text.size();
    }
    if (!options.split) return sink(result.view());
    split_by_character(
        result.view(), [&](char32_t c) { return c == options.replacement; }, Behavior::kMergedWithNext, sink);
  }
};

struct Digits final : PreTokenizer {
  Behavior behavior;
  explicit Digits(bool individual) : behavior(individual ? Behavior::kIsolated : Behavior::kContiguous) {}
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    split_by_character(piece, is_number, behavior, sink);
  }
};

struct Punctuation final : PreTokenizer {
  Behavior behavior;
  explicit Punctuation(Behavior behavior) : behavior(behavior) {}
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    split_by_character(piece, is_punctuation, behavior, sink);
  }
};

struct WhitespaceSplit final : PreTokenizer {
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    split_by_character(piece, is_space, Behavior::kRemoved, sink);
  }
};

struct CharDelimiterSplit final : PreTokenizer {
  char32_t delimiter;
  explicit CharDelimiterSplit(char32_t delimiter) : delimiter(delimiter) {}
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    split_by_character(
        piece, [&](char32_t c) { return c == delimiter; }, Behavior::kRemoved, sink);
  }
};

struct BertSplit final : PreTokenizer {
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    const auto words = [&](const Piece& word) {
      split_by_character(word, is_punctuation, Behavior::kIsolated, sink);
    };
    split_by_character(piece, is_space, Behavior::kRemoved, words);
  }
};

// Words, and runs of what is neither a word nor white space, as in Rust's regex crate.
struct Whitespace final : PreTokenizer {
  Pattern pattern;
  Whitespace() : pattern(make()) {}
  static Pattern make() {
    const std::string word = word_class(true);
    const std::string other = fmt::format("[^{}{}]", word.substr(1, word.size() - 2), shorthand('s').text);
    return Pattern::pcre2(word + "+|" + other + "+", "\\w+|[^\\w\\s]+");
  }
  void split(const Piece& piece, MatchMemory& memory, PieceSink sink) const override {
    split_by_pattern(piece, pattern, true, Behavior::kRemoved, memory, sink);
  }
};

struct FixedLength final : PreTokenizer {
  std::size_t length;
  explicit FixedLength(std::size_t length) : length(length) {}
  void split(const Piece& piece, MatchMemory&, PieceSink sink) const override {
    std::size_t start = 0, count = 0;
    for (std::size_t at = 0; at < piece.text.size();) {
      next_code_point(piece.text, at);
      if (++count < length && at < piece.text.size()) continue;
      sink(piece.part(start, at));
      start = at;
      count = 0;
    }
  }
};

struct Sequence final : PreTokenizer {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  void split(const Piece& piece, MatchMemory& memory, PieceSink sink) const override {
    run(0, piece, memory, sink);
  }
  void run(std::size_t step, const Piece& piece, MatchMemory& memory, PieceSink sink) const {
    if (step == steps.size()) return sink(piece);
    const auto rest = [&](const Piece& part) { run(step + 1, part, memory, sink); };
    steps[step]->split(piece, memory, rest);
  }
  bool leave_bytes() override { return !steps.empty() && steps.back()->leave_bytes(); }
};

}  // namespace

MetaspaceOptions read_metaspace(const JsonView& json) {
  using Prepend = MetaspaceOptions::Prepend;
  MetaspaceOptions options{json.at("replacement").character(), Prepend::kAlways,
                           json.boolean_or("split", true)};
  const std::optional<JsonView> scheme = json.find("prepend_scheme");
  const std::string name = scheme ? scheme->text() : "always";
  if (name == "never")
    options.prepend = Prepend::kNever;
  else if (name == "first")
    options.prepend = Prepend::kFirst;
  else if (name != "always")
    scheme->fail(fmt::format("\"{}\" is not a scheme: always, first or never", name));
  if (!json.boolean_or("add_prefix_space", true) && options.prepend != Prepend::kNever)
    json.fail("add_prefix_space = false contradicts prepend_scheme", "set prepend_scheme to never");
  return options;
}

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonView& json) {
  const std::string type = json.at("type").text();
  if (type == "ByteLevel") {
    auto step = std::make_unique<ByteLevel>();
    step->prefix_space = json.at("add_prefix_space").boolean();
    if (json.boolean_or("use_regex", true)) step->pattern = Pattern::onig(kGpt2);
    return step;
  }
  if (type == "Split") {
    return std::make_unique<Split>(read_pattern(json.at("pattern")), read_behavior(json.at("behavior")),
                                   json.at("invert").boolean());
  }
  if (type == "Metaspace") return std::make_unique<Metaspace>(read_metaspace(json));
  if (type == "Digits") return std::make_unique<Digits>(json.at("individual_digits").boolean());
  if (type == "Punctuation") {
    const std::optional<JsonView> behavior = json.find("behavior");
    return std::make_unique<Punctuation>(behavior ? read_behavior(*behavior) : Behavior::kIsolated);
  }
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "BertPreTokenizer") return std::make_unique<BertSplit>();
  if (type == "CharDelimiterSplit")
    return std::make_unique<CharDelimiterSplit>(json.at("delimiter").character());
  if (type == "FixedLength") {
    constexpr std::int64_t kLongest = 1 << 30;
    const std::optional<JsonView> length = json.find("length");
    const std::int64_t value = length ? length->integer(kLongest) : 5;
    if (value == 0) length->fail("a length of 0");
    return std::make_unique<FixedLength>(static_cast<std::size_t>(value));
  }
  if (type == "Sequence") {
    auto sequence = std::make_unique<Sequence>();
    for (const JsonView& step : json.at("pretokenizers").items())
      sequence->steps.push_back(read_pre_tokenizer(step));
    return sequence;
  }
  json.at("type").fail(fmt::format("the pre-tokenizer \"{}\" is not supported", type),
                       "use another tokenizer");
}

}  // namespace mantissa::tokenizer
