// Mutants of pairs of Megatron: sizes, places and counts follow the ids, or one of them changes.
#include "mutate.h"

namespace mantissa::fuzz {
namespace {

constexpr std::size_t kMagic = 9;

std::size_t width_of(std::uint8_t code) {
  switch (code) {
    case 1:
    case 2:
      return 1;
    case 4:
      return 4;
    case 5:
      return 8;
    default:
      return 2;
  }
}

struct Item {
  std::uint32_t ids = 0;
};

}  // namespace

std::optional<std::string> mutate_binidx(std::string_view input, Random& random) {
  const auto length = take<std::uint32_t>(input);
  if (!length) return std::nullopt;
  auto magic = take_bytes(input, kMagic);
  const auto version = take<std::uint64_t>(input);
  const auto old_code = take<std::uint8_t>(input);
  const auto item_count = take<std::uint64_t>(input), bound_count = take<std::uint64_t>(input);
  if (!bound_count || *item_count > input.size() / 12 || *bound_count > input.size() / 8) return std::nullopt;
  std::vector<Item> items;
  for (std::uint64_t i = 0; i < *item_count; ++i) items.push_back({*take<std::uint32_t>(input)});
  if (!take_bytes(input, 8 * *item_count)) return std::nullopt;
  std::vector<std::uint64_t> bounds;
  for (std::uint64_t b = 0; b < *bound_count; ++b) {
    const auto bound = take<std::uint64_t>(input);
    if (!bound) return std::nullopt;
    bounds.push_back(*bound);
  }
  std::string ids(input);

  static constexpr std::uint8_t kCodes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  static constexpr std::uint64_t kNumbers[] = {
      0, 1, 2, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff};
  const auto number = [&] { return kNumbers[random.below(std::size(kNumbers))]; };
  const std::uint8_t code = random.one_in(4) ? kCodes[random.below(std::size(kCodes))] : *old_code;
  if (random.one_in(2))
    mutate_list(items, random, [&](Item& i) { i.ids = static_cast<std::uint32_t>(random.below(9)); });
  if (random.one_in(2))
    mutate_list(bounds, random, [&](std::uint64_t& b) { b = random.below(items.size() + 1); });
  if (random.one_in(2)) ids = mutate_bytes(std::move(ids), ids.size() + 64);
  // The ids make up the items, except in a few mutants.
  const std::size_t width = width_of(code);
  std::uint64_t total = 0;
  for (const Item& i : items) total += i.ids;
  if (!random.one_in(8) && total < 4096) ids.resize(total * width);

  std::string index = *magic;
  put(index, random.one_in(32) ? number() : *version);
  put(index, code);
  put(index, random.one_in(16) ? number() : std::uint64_t{items.size()});
  put(index, random.one_in(16) ? number() : std::uint64_t{bounds.size()});
  const std::size_t changed = random.one_in(8) ? random.below(items.size()) : items.size();
  for (std::size_t i = 0; i < items.size(); ++i)
    put(index, i == changed && random.one_in(2) ? static_cast<std::uint32_t>(number()) : items[i].ids);
  std::uint64_t place = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    put(index, i == changed ? number() : place);
    place += items[i].ids * width;
  }
  for (const std::uint64_t b : bounds) put(index, random.one_in(32) ? number() : b);
  std::string out;
  put(out, static_cast<std::uint32_t>(index.size()));
  return out + index + ids;
}

}  // namespace mantissa::fuzz
