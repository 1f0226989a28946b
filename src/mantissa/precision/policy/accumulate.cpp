#include "mantissa/precision/policy/accumulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/card_sum.h"

namespace mantissa::precision {
namespace {

/// Returns the numbers that k may have on a card: "8, 16, 32, 64 or 128".
std::string blocks_of(Card card) {
  std::vector<std::string> all;
  for (std::int64_t k = 1; k <= kMostPromoted; k *= 2) {
    if (takes_block(card, k)) all.push_back(std::to_string(k));
  }
  return list_of(all);
}

bool has_f16(Card card) {
  return std::ranges::any_of(instructions(), [&](const Instruction& i) { return i.card == card && i.f16; });
}

std::int64_t read_block(std::string_view text, std::string_view number, Card card) {
  std::int64_t k = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), k);
  if (error == std::errc() && end == number.data() + number.size() && k > 0 && takes_block(card, k)) return k;
  throw ConfigError("accumulate={}: k must be the terms of an instruction or of a loop on {}: {}",
                    in_quotes(text), name(card), blocks_of(card));
}

}  // namespace

Accumulator parse_accumulator(std::string_view text) {
  if (const auto format = parse_scalar(text)) return *format;
  const std::size_t end = std::min(text.find_first_of(": "), text.size());
  const std::optional<Card> card = parse_card(text.substr(0, end));
  if (!card) {
    const std::vector<std::string> names = accumulator_values();
    throw ConfigError("accumulate={}: unknown number format or card{} ({})", in_quotes(text),
                      did_you_mean(text.substr(0, end), names), list_of(names));
  }
  Accumulator value(*card, Scalar::f32, 0);
  for (std::size_t at = end; at < text.size();) {
    const std::size_t next = std::min(text.find_first_of(": ", at + 1), text.size());
    const std::string_view option = text.substr(at + 1, next - at - 1);
    at = next;
    if (option.starts_with("k=")) {
      value.block = read_block(text, option.substr(2), *card);
    } else if (option == "f16" && has_f16(*card)) {
      value.format = Scalar::f16;
    } else if (option == "f16") {
      throw ConfigError("accumulate={}: {} has no f16 accumulators; use accumulate={}", in_quotes(text),
                        name(*card), name(*card));
    } else if (option != "f32" && !option.empty()) {
      throw ConfigError("accumulate={}: unknown option {} of {} (f32, f16, k=TERMS)", in_quotes(text),
                        in_quotes(option), name(*card));
    }
  }
  return value;
}

std::string accumulator_text(const Accumulator& value) {
  if (value.card == Card::none) return std::string(name(value.format));
  std::string text(name(value.card));
  if (value.format == Scalar::f16) text += ":f16";
  if (value.block > 0) text += fmt::format(":k={}", value.block);
  return text;
}

std::vector<std::string> accumulator_values() {
  std::vector<std::string> names = names_of(kScalars, [](Scalar s) { return mantissa::name(s); });
  for (const CardTraits& card : cards()) names.emplace_back(card.name);
  return names;
}

}  // namespace mantissa::precision
