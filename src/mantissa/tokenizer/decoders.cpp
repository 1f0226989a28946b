#include "mantissa/tokenizer/decoders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "mantissa/tokenizer/byte_level.h"
#include "mantissa/tokenizer/normalizers.h"
#include "mantissa/tokenizer/pre_tokenizers.h"
#include "mantissa/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  std::size_t at = 0;
  if (from.empty()) {  // as Rust: between all characters
    result += to;
    while (at < text.size()) {
      const std::size_t length = utf8_length(text[at]);
      result.append(text.substr(at, length)).append(to);
      at += length;
    }
    return result;
  }
  for (std::size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size())
    result.append(text.substr(at, found - at)).append(to);
  return result.append(text.substr(at));
}

/// Replaces the bytes beyond ASCII by one character of one byte if `bytes` are not UTF-8: later decoders
/// require UTF-8.
void hide_stray(std::string& bytes) {
  constexpr char kSubstitute = '\x1A';
  std::string repaired;
  if (repair_utf8(bytes, repaired) == bytes) return;
  for (char& c : bytes) c = static_cast<unsigned char>(c) < 0x80 ? c : kSubstitute;
}

struct ByteLevel final : Decoder {
  void apply(Tokens& tokens, MatchMemory&, StrayBytes stray) const override {
    std::string bytes, repaired;
    for (const std::string& token : tokens) bytes += from_byte_characters(token).value_or(token);
    if (stray == StrayBytes::counted) hide_stray(bytes);
    tokens = {std::string(repair_utf8(bytes, repaired))};
  }
};

struct ByteFallback final : Decoder {
  // The byte of a token like "<0x0A>".
  static std::optional<char> byte_of(std::string_view token) {
    constexpr std::size_t kSize = 6;
    if (token.size() != kSize || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
    std::string_view digits = token.substr(3, 2);
    if (digits[0] == '+') digits.remove_prefix(1);  // Rust accepts a sign
    unsigned value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return std::nullopt;
    return static_cast<char>(value);
  }
  void apply(Tokens& tokens, MatchMemory&, StrayBytes stray) const override {
    Tokens result;
    std::string bytes, repaired;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (stray == StrayBytes::counted) hide_stray(bytes);
      if (repair_utf8(bytes, repaired) == bytes)
        result.push_back(bytes);
      else
        result.insert(result.end(), bytes.size(), std::string(kReplacement));
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = byte_of(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  }
};

struct Fuse final : Decoder {
  void apply(Tokens& tokens, MatchMemory&, StrayBytes) const override { tokens = {joined(tokens)}; }
};

struct Strip final : Decoder {
  std::string content;
  std::size_t start, stop;
  void apply(Tokens& tokens, MatchMemory&, StrayBytes) const override {
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (std::size_t i = 0; i < start && text.starts_with(content); ++i) text.remove_prefix(content.size());
      for (std::size_t i = 0; i < stop && text.ends_with(content); ++i) text.remove_suffix(content.size());
      token = std::string(text);
    }
  }
};

struct Replace final : Decoder {
  Pattern pattern;
  std::string content;
  Replace(Pattern pattern, std::string content) : pattern(std::move(pattern)), content(std::move(content)) {}
  void apply(Tokens& tokens, MatchMemory& memory, StrayBytes) const override {
    for (std::string& token : tokens) {
      if (token.empty()) continue;
      std::string text;
      std::size_t done = 0;
      pattern.for_each(token, memory, [&](std::size_t from, std::size_t to) {
        text += token.substr(done, from - done) + content;
        require_length(token.size(), text.size());
        done = to;
      });
      token = text + token.substr(done);
    }
  }
};

struct Metaspace final : Decoder {
  std::string replacement;
  bool prepends = false;
  void apply(Tokens& tokens, MatchMemory&, StrayBytes) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], replacement, i == 0 && prepends ? "" : " ");
  }
};

struct WordPiece final : Decoder {
  std::string prefix;
  bool cleanup = true;
  void apply(Tokens& tokens, MatchMemory&, StrayBytes) const override {
    using Pair = std::array<std::string_view, 2>;
    // The order counts: these are the replacements of `tokenizers`, one after the other.
    constexpr Pair kCleanups[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                  {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                  {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix) ? token.substr(prefix.size()) : " " + token;
      if (!cleanup) continue;
      for (const auto& [from, to] : kCleanups) token = replaced(token, from, to);
    }
  }
};

struct BpeDecoder final : Decoder {
  std::string suffix;
  explicit BpeDecoder(std::string suffix) : suffix(std::move(suffix)) {}
  void apply(Tokens& tokens, MatchMemory&, StrayBytes) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replaced(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  }
};

struct Sequence final : Decoder {
  std::vector<std::unique_ptr<Decoder>> steps;
  void apply(Tokens& tokens, MatchMemory& memory, StrayBytes stray) const override {
    for (const std::unique_ptr<Decoder>& step : steps) step->apply(tokens, memory, stray);
  }
};

}  // namespace

std::unique_ptr<Decoder> read_decoder(const JsonView& json) {
  constexpr std::int64_t kMost = 1 << 20;
  const std::string type = json.at("type").text();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(json.at("suffix").text());
  if (type == "Replace")
    return std::make_unique<Replace>(read_pattern(json.at("pattern")), json.at("content").text());
  if (type == "Strip") {
    auto strip = std::make_unique<Strip>();
    append_utf8(json.at("content").character(), strip->content);
    strip->start = static_cast<std::size_t>(json.at("start").integer(kMost));
    strip->stop = static_cast<std::size_t>(json.at("stop").integer(kMost));
    return strip;
  }
  if (type == "Metaspace") {
    const MetaspaceOptions options = read_metaspace(json);
    auto metaspace = std::make_unique<Metaspace>();
    append_utf8(options.replacement, metaspace->replacement);
    metaspace->prepends = options.prepend != MetaspaceOptions::Prepend::kNever;
    return metaspace;
  }
  if (type == "WordPiece") {
    auto pieces = std::make_unique<WordPiece>();
    pieces->prefix = json.at("prefix").text();
    pieces->cleanup = json.at("cleanup").boolean();
    return pieces;
  }
  if (type == "Sequence") {
    auto sequence = std::make_unique<Sequence>();
    for (const JsonView& step : json.at("decoders").items()) sequence->steps.push_back(read_decoder(step));
    return sequence;
  }
  json.at("type").fail(fmt::format("the decoder \"{}\" is not supported", type), "use another tokenizer");
}

}  // namespace mantissa::tokenizer
