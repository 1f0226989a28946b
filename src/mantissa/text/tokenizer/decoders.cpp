#include "mantissa/text/tokenizer/decoders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/text/tokenizer/byte_level.h"
#include "mantissa/text/tokenizer/normalizers.h"
#include "mantissa/text/tokenizer/patterns.h"
#include "mantissa/text/tokenizer/pre_tokenizers.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

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

/// A step that rewrites whole tokens.
class WholeTokens : public Decoding {
 public:
  void push(const TokenPart& part, PartSink sink) final {
    if (part.begins && part.ends) return token(part.text, sink);
    joined_ += part.text;
    if (!part.ends) return;
    const std::string whole = std::exchange(joined_, {});
    token(whole, sink);
  }

 protected:
  virtual void token(std::string_view token, PartSink sink) = 0;

 private:
  std::string joined_;  // the parts of a token that has not ended
};

/// What a step passes on as the parts of one token.
class OneToken {
 public:
  void pass(std::string_view text, bool ends, PartSink sink) {
    if (!text.empty() || ends) sink({text, !std::exchange(begun_, true), ends});
  }

 private:
  bool begun_ = false;
};

/// A decoder whose decodings have a reference to its settings.
template <class Step, class Settings>
struct Simple final : Decoder {
  Settings settings;
  explicit Simple(Settings settings) : settings(std::move(settings)) {}
  std::unique_ptr<Decoding> begin(StrayBytes) const override { return std::make_unique<Step>(settings); }
};
struct NoSettings {};

/// A decoder of bytes.
template <class Step>
struct OfBytes final : Decoder {
  std::unique_ptr<Decoding> begin(StrayBytes stray) const override { return std::make_unique<Step>(stray); }
};

/// Replaces each byte beyond ASCII by a character of one byte if `bytes` are not UTF-8.
void hide_stray(std::string& bytes) {
  constexpr char kSubstitute = '\x1A';
  std::string repaired;
  if (repair_utf8(bytes, repaired) == bytes) return;
  for (char& c : bytes) c = static_cast<unsigned char>(c) < 0x80 ? c : kSubstitute;
}

/// All tokens as bytes, and those as one token.
class ByteLevel final : public WholeTokens {
 public:
  explicit ByteLevel(StrayBytes stray) : stray_(stray) {}
  void finish(PartSink sink) override { pass(bytes_.size(), true, sink); }

 private:
  void token(std::string_view token, PartSink sink) override {
    if (const std::optional<std::string> bytes = from_byte_characters(token)) {
      bytes_ += *bytes;
    } else {
      bytes_ += token;
    }
    pass(bytes_.size() - incomplete_tail(bytes_), false, sink);
  }
  void pass(std::size_t size, bool ends, PartSink sink) {
    std::string passed = bytes_.substr(0, size), repaired;
    if (stray_ == StrayBytes::counted) hide_stray(passed);
    text_.pass(repair_utf8(passed, repaired), ends, sink);
    bytes_.erase(0, size);
  }

  StrayBytes stray_;
  std::string bytes_;  // of a character that is not complete
  OneToken text_;
};

/// Tokens like "<0x0A>" as bytes. A run of them must be UTF-8; otherwise each is one U+FFFD. So a run is held
/// until it ends.
class ByteFallback final : public WholeTokens {
 public:
  explicit ByteFallback(StrayBytes stray) : stray_(stray) {}
  void finish(PartSink sink) override { flush(sink); }

 private:
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
  void token(std::string_view token, PartSink sink) override {
    if (const std::optional<char> byte = byte_of(token)) {
      run_ += *byte;
      return;
    }
    flush(sink);
    sink({token});
  }
  void flush(PartSink sink) {
    if (run_.empty()) return;
    if (stray_ == StrayBytes::counted) hide_stray(run_);
    std::string repaired;
    if (repair_utf8(run_, repaired) == run_) {
      sink({run_});
    } else {
      for (std::size_t i = 0; i < run_.size(); ++i) sink({kReplacement});
    }
    run_.clear();
  }

  StrayBytes stray_;
  std::string run_;
};

/// All tokens as one.
class Fuse final : public Decoding {
 public:
  explicit Fuse(const NoSettings&) {}
  void push(const TokenPart& part, PartSink sink) override { text_.pass(part.text, false, sink); }
  void finish(PartSink sink) override { text_.pass("", true, sink); }

 private:
  OneToken text_;
};

struct StripSettings {
  std::string content;  // a character
  std::size_t start, stop;
};

/// Removes characters at the start and the end of each token.
class Strip final : public Decoding {
 public:
  explicit Strip(const StripSettings& settings) : settings_(settings) {}
  void push(const TokenPart& part, PartSink sink) override {
    const std::string_view content = settings_.content;
    if (part.begins) {
      to_strip_ = settings_.start;
      begins_ = true;
    }
    std::string_view text = part.text;
    for (; to_strip_ > 0 && text.starts_with(content); --to_strip_) text.remove_prefix(content.size());
    if (!text.empty()) to_strip_ = 0;
    // What may be the end of the token waits.
    std::string whole = std::exchange(held_, {});
    whole += text;
    text = whole;
    std::size_t at_end = 0;
    for (; at_end < settings_.stop && text.ends_with(content); ++at_end) text.remove_suffix(content.size());
    if (!part.ends) held_ = whole.substr(text.size());
    if (!text.empty() || part.ends) sink({text, std::exchange(begins_, false), part.ends});
  }

 private:
  const StripSettings& settings_;
  std::size_t to_strip_ = 0;
  std::string held_;
  bool begins_ = true;
};

struct ReplaceSettings {
  Pattern pattern;
  std::string content;
};

class Replace final : public WholeTokens {
 public:
  explicit Replace(const ReplaceSettings& settings) : settings_(settings) {}

 private:
  void token(std::string_view token, PartSink sink) override {
    if (token.empty()) return sink({token});
    std::string text;
    std::size_t done = 0;
    if (!memory_) memory_.emplace();
    settings_.pattern.for_each(token, *memory_, [&](std::size_t from, std::size_t to) {
      text.append(token.substr(done, from - done)).append(settings_.content);
      require_length(token.size(), text.size());
      done = to;
    });
    if (done == 0 && text.empty()) return sink({token});
    text.append(token.substr(done));
    sink({text});
  }

  const ReplaceSettings& settings_;
  std::optional<MatchMemory> memory_;
};

struct MetaspaceSettings {
  std::string replacement;  // a character
  bool prepends;
};

/// The replacement as a space, and as nothing in the first token if the file prepends one.
class Metaspace final : public Decoding {
 public:
  explicit Metaspace(const MetaspaceSettings& settings) : settings_(settings) {}
  void push(const TokenPart& part, PartSink sink) override {
    if (part.begins) first_ = !std::exchange(begun_, true);
    const bool drops = first_ && settings_.prepends;
    sink({replaced(part.text, settings_.replacement, drops ? "" : " "), part.begins, part.ends});
  }

 private:
  const MetaspaceSettings& settings_;
  bool begun_ = false, first_ = false;
};

struct WordPieceSettings {
  std::string prefix;
  bool cleanup;
};

class WordPiece final : public WholeTokens {
 public:
  explicit WordPiece(const WordPieceSettings& settings) : settings_(settings) {}

 private:
  void token(std::string_view token, PartSink sink) override {
    using Pair = std::array<std::string_view, 2>;
    // The order counts: these are the replacements of `tokenizers`, one after the other.
    constexpr Pair kCleanups[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                  {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                  {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    std::string text(token);
    if (!std::exchange(first_, false))
      text = token.starts_with(settings_.prefix) ? text.substr(settings_.prefix.size()) : " " + text;
    if (settings_.cleanup) {
      for (const auto& [from, to] : kCleanups) text = replaced(text, from, to);
    }
    sink({text});
  }

  const WordPieceSettings& settings_;
  bool first_ = true;
};

struct SuffixSettings {
  std::string suffix;
};

/// The suffix as a space, and as nothing in the last token, so one token is held.
class Suffix final : public WholeTokens {
 public:
  explicit Suffix(const SuffixSettings& settings) : settings_(settings) {}
  void finish(PartSink sink) override { pass("", sink); }

 private:
  void token(std::string_view token, PartSink sink) override {
    pass(" ", sink);
    last_ = token;
  }
  void pass(std::string_view space, PartSink sink) const {
    if (last_) sink({replaced(*last_, settings_.suffix, space)});
  }

  const SuffixSettings& settings_;
  std::optional<std::string> last_;
};

struct Sequence final : Decoder {
  std::vector<std::unique_ptr<Decoder>> steps;
  std::unique_ptr<Decoding> begin(StrayBytes stray) const override;
};

class SequenceDecoding final : public Decoding {
 public:
  SequenceDecoding(const Sequence& sequence, StrayBytes stray) {
    for (const std::unique_ptr<Decoder>& step : sequence.steps) steps_.push_back(step->begin(stray));
  }
  void push(const TokenPart& part, PartSink sink) override { push_from(0, part, sink); }
  void finish(PartSink sink) override {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      steps_[i]->finish([&](const TokenPart& part) { push_from(i + 1, part, sink); });
  }

 private:
  void push_from(std::size_t step, const TokenPart& part, PartSink sink) const {
    if (step == steps_.size()) return sink(part);
    steps_[step]->push(part, [&](const TokenPart& next) { push_from(step + 1, next, sink); });
  }

  std::vector<std::unique_ptr<Decoding>> steps_;
};

std::unique_ptr<Decoding> Sequence::begin(StrayBytes stray) const {
  return std::make_unique<SequenceDecoding>(*this, stray);
}

template <class Step, class Settings = NoSettings>
std::unique_ptr<Decoder> decoder(Settings settings = {}) {
  return std::make_unique<Simple<Step, Settings>>(std::move(settings));
}

}  // namespace

std::unique_ptr<Decoder> read_decoder(const JsonView& json) {
  constexpr std::int64_t kMost = 1 << 20;
  const std::string type = json.at("type").text();
  if (type == "ByteLevel") return std::make_unique<OfBytes<ByteLevel>>();
  if (type == "ByteFallback") return std::make_unique<OfBytes<ByteFallback>>();
  if (type == "Fuse") return decoder<Fuse>();
  if (type == "BPEDecoder") return decoder<Suffix>(SuffixSettings{json.at("suffix").text()});
  if (type == "Replace")
    return decoder<Replace, ReplaceSettings>({read_pattern(json.at("pattern")), json.at("content").text()});
  if (type == "Strip") {
    StripSettings strip;
    append_utf8(json.at("content").character(), strip.content);
    strip.start = static_cast<std::size_t>(json.at("start").integer(kMost));
    strip.stop = static_cast<std::size_t>(json.at("stop").integer(kMost));
    return decoder<Strip>(std::move(strip));
  }
  if (type == "Metaspace") {
    const MetaspaceOptions options = read_metaspace(json);
    MetaspaceSettings metaspace;
    append_utf8(options.replacement, metaspace.replacement);
    metaspace.prepends = options.prepend != MetaspaceOptions::Prepend::kNever;
    return decoder<Metaspace>(std::move(metaspace));
  }
  if (type == "WordPiece")
    return decoder<WordPiece>(WordPieceSettings{json.at("prefix").text(), json.at("cleanup").boolean()});
  if (type == "Sequence") {
    auto sequence = std::make_unique<Sequence>();
    for (const JsonView& step : json.at("decoders").items()) sequence->steps.push_back(read_decoder(step));
    return sequence;
  }
  json.at("type").fail(fmt::format("the decoder \"{}\" is not supported", type), "use another tokenizer");
}

}  // namespace mantissa::tokenizer
