#include "mantissa/text/tokenizer/normalizers.h"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/byte_level.h"
#include "mantissa/text/tokenizer/charsmap.h"
#include "mantissa/text/tokenizer/normal_forms.h"
#include "mantissa/text/tokenizer/unicode.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// Replaces each code point by what write(point, text) appends, which may be nothing.
template <class Write>
void rewrite(OwnedPiece& piece, const Write& write) {
  std::string text;
  text.reserve(piece.text.size());
  std::size_t origin = 0;
  for (std::size_t at = 0; at < piece.text.size();) {
    const bool first = at < piece.origin;
    write(next_code_point(piece.text, at), text);
    if (first) origin = text.size();
  }
  piece = {std::move(text), origin};
}

struct Form final : Normalizer {
  bool compose, compatibility;
  Form(bool compose, bool compatibility) : compose(compose), compatibility(compatibility) {}
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    const std::string_view before = piece.text;
    std::string text = normal_form(before, compose, compatibility);
    if (piece.origin > 0) {
      std::size_t origin = normal_form(before.substr(0, piece.origin), compose, compatibility).size();
      if (!text.empty()) origin = std::max(origin, utf8_length(text[0]));
      piece.origin = std::min(origin, text.size());
    }
    piece.text = std::move(text);
  }
};

struct Lowercase final : Normalizer {
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    rewrite(piece, [](char32_t point, std::string& text) {
      if (point == kDottedI)
        text += kDottedILower;
      else
        append_utf8(to_lower(point), text);
    });
  }
};

struct StripAccents final : Normalizer {
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    rewrite(piece, [](char32_t point, std::string& text) {
      if (!is_mark(point)) append_utf8(point, text);
    });
  }
};

// The rules of the normalizer "nmt" of SentencePiece: most controls are dropped, other white space becomes a
// space.
struct Nmt final : Normalizer {
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    rewrite(piece, [](char32_t c, std::string& text) {
      if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
          c == 0x9F)
        return;
      const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                         c == 0xFEFF || c == 0xFFFD;
      append_utf8(space ? U' ' : c, text);
    });
  }
};

struct ByteLevelNormalizer final : Normalizer {
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    const std::size_t origin = to_byte_characters(piece.view().text.substr(0, piece.origin)).size();
    piece = {to_byte_characters(piece.text), origin};
  }
};

struct Strip final : Normalizer {
  bool left, right;
  Strip(bool left, bool right) : left(left), right(right) {}
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    const std::string_view text = piece.text;
    std::size_t from = 0, to = 0;  // to: the end of the last code point that is kept
    bool begun = !left;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      if (is_space(next_code_point(text, at))) continue;
      if (!begun) from = start;
      begun = true;
      to = at;
    }
    if (!right) to = text.size();
    if (!begun) from = to = text.size();
    const Piece kept = piece.view().part(from, std::max(from, to));
    piece = {std::string(kept.text), kept.origin};
  }
};

struct Prepend final : Normalizer {
  std::string prefix;
  explicit Prepend(std::string prefix) : prefix(std::move(prefix)) {}
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    if (piece.text.empty()) return;
    piece.text.insert(0, prefix);
    if (piece.origin > 0) piece.origin += prefix.size();
  }
};

struct Replace final : Normalizer {
  Pattern pattern;
  std::string content;
  Replace(Pattern pattern, std::string content) : pattern(std::move(pattern)), content(std::move(content)) {}
  void apply(OwnedPiece& piece, MatchMemory& memory) const override {
    if (piece.text.empty()) return;
    const std::string_view before = piece.text;
    std::string text;
    std::size_t done = 0, origin = 0;
    const auto copy = [&](std::size_t to) {
      text += before.substr(done, to - done);
      if (done < piece.origin) origin = text.size() - (to > piece.origin ? to - piece.origin : 0);
    };
    pattern.for_each(before, memory, [&](std::size_t start, std::size_t end) {
      copy(start);
      text += content;
      require_length(before.size(), text.size());
      if (end == 0 || end - 1 < piece.origin) origin = text.size();
      done = end;
    });
    if (done == 0 && text.empty()) return;
    copy(before.size());
    piece = {std::move(text), origin};
  }
};

struct Charsmap final : Normalizer {
  PrecompiledCharsmap map;
  explicit Charsmap(PrecompiledCharsmap map) : map(std::move(map)) {}
  void apply(OwnedPiece& piece, MatchMemory&) const override {
    const std::size_t origin = map.apply(piece.view().text.substr(0, piece.origin)).size();
    std::string text = map.apply(piece.text);
    require_length(piece.text.size(), text.size());
    piece.origin = std::min(origin, text.size());
    piece.text = std::move(text);
  }
};

// BERT's clean-up.
struct Bert final : Normalizer {
  bool clean, spread_chinese, strip_accents, lowercase;
  void apply(OwnedPiece& piece, MatchMemory& memory) const override {
    if (clean) {
      rewrite(piece, [](char32_t c, std::string& text) {
        const bool white = c == '\t' || c == '\n' || c == '\r';
        if (c == 0 || c == 0xFFFD || (!white && is_control(c))) return;
        append_utf8(white || is_space(c) ? U' ' : c, text);
      });
    }
    if (spread_chinese) {
      rewrite(piece, [](char32_t c, std::string& text) {
        const bool chinese = (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
                             (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
                             (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
                             (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
        if (chinese) text += ' ';
        append_utf8(c, text);
        if (chinese) text += ' ';
      });
    }
    if (strip_accents) {
      Form(false, false).apply(piece, memory);
      rewrite(piece, [](char32_t c, std::string& text) {
        if (!is_nonspacing_mark(c)) append_utf8(c, text);
      });
    }
    if (lowercase) Lowercase().apply(piece, memory);
  }
};

struct Sequence final : Normalizer {
  std::vector<std::unique_ptr<Normalizer>> steps;
  void apply(OwnedPiece& piece, MatchMemory& memory) const override {
    const std::size_t before = piece.text.size();
    for (const std::unique_ptr<Normalizer>& step : steps) {
      step->apply(piece, memory);
      require_length(before, piece.text.size());  // steps that double a text do so together
    }
  }
};

}  // namespace

void require_length(std::size_t before, std::size_t now) {
  constexpr std::size_t kMuch = std::size_t{64} << 20, kTimes = 64;
  if (now <= kMuch || now / kTimes <= before) return;
  throw ConfigError(
      fmt::format("the tokenizer's replacements make a text of {} bytes longer than {} bytes. Fix: check the "
                  "tokenizer's file.",
                  before, now));
}

Pattern read_pattern(const JsonView& json) {
  try {
    if (const std::optional<JsonView> text = json.find("String")) return Pattern::literal(text->text());
    return Pattern::onig(json.at("Regex").text());
  } catch (const std::invalid_argument& error) {
    json.fail(fmt::format("the regular expression is not supported ({})", error.what()),
              "use a tokenizer with another pattern");
  }
}

std::unique_ptr<Normalizer> read_normalizer(const JsonView& json) {
  const std::string type = json.at("type").text();
  if (type == "NFC") return std::make_unique<Form>(true, false);
  if (type == "NFD") return std::make_unique<Form>(false, false);
  if (type == "NFKC") return std::make_unique<Form>(true, true);
  if (type == "NFKD") return std::make_unique<Form>(false, true);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Strip")
    return std::make_unique<Strip>(json.at("strip_left").boolean(), json.at("strip_right").boolean());
  if (type == "Prepend") return std::make_unique<Prepend>(json.at("prepend").text());
  if (type == "Replace")
    return std::make_unique<Replace>(read_pattern(json.at("pattern")), json.at("content").text());
  if (type == "Precompiled")
    return std::make_unique<Charsmap>(PrecompiledCharsmap::read(json.at("precompiled_charsmap")));
  if (type == "BertNormalizer") {
    auto bert = std::make_unique<Bert>();
    bert->clean = json.at("clean_text").boolean();
    bert->spread_chinese = json.at("handle_chinese_chars").boolean();
    bert->lowercase = json.at("lowercase").boolean();
    bert->strip_accents = json.boolean_or("strip_accents", bert->lowercase);
    return bert;
  }
  if (type == "Sequence") {
    auto sequence = std::make_unique<Sequence>();
    for (const JsonView& step : json.at("normalizers").items())
      sequence->steps.push_back(read_normalizer(step));
    return sequence;
  }
  json.at("type").fail(fmt::format("the normalizer \"{}\" is not supported", type), "use another tokenizer");
}

}  // namespace mantissa::tokenizer
