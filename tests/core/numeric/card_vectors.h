// Vectors of tools/golden_cards.py: results of the instructions of cards, by MMA-Sim.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::card_vectors {

/// All tiles of one instruction: `side` × `side` sums of `sum.k` products each.
struct Case {
  std::string name;  // "h100.bf16-bf16.f32.k16"
  Card card = Card::none;
  Accumulator accumulator;
  Scalar a_format = Scalar::f32, b_format = Scalar::f32;
  bool blocks = false;  // factors are coded elements
  CardSum sum;
  std::size_t tiles = 0, side = 0;
  std::vector<float> a, b, c, d;

  std::size_t depth() const { return static_cast<std::size_t>(sum.k); }
  std::span<const float> row(const std::vector<float>& of, std::size_t tile, std::size_t i) const {
    return std::span(of).subspan((tile * side + i) * depth(), depth());
  }
};

inline std::vector<float> read(const io::SafetensorsReader& file, const std::string& name, Scalar type) {
  const io::TensorInfo* info = file.find(name);
  const auto count = static_cast<std::size_t>(info->count());
  std::vector<std::byte> bytes(count * bytes_of(type));
  file.read(*info, bytes);
  std::vector<float> values(count);
  load_row(bytes.data(), type, 0, count, values.data());
  return values;
}

inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Reads every instruction of a file.
inline std::vector<Case> cases(const std::filesystem::path& path) {
  const io::SafetensorsReader file(path);
  std::vector<Case> all;
  for (const io::TensorInfo& info : file.tensors()) {
    if (!info.name.ends_with(".a")) continue;
    Case one;
    one.name = info.name.substr(0, info.name.size() - 2);
    const std::vector<std::string> parts = split(one.name, '.');
    const std::vector<std::string> formats = split(parts[1], '-');
    one.card = parse_card(parts[0]).value();
    const auto in_blocks = [&](std::size_t side) {
      std::string format = formats[side];
      std::ranges::replace(format, '_', '-');
      return parse_block_format(format);
    };
    one.blocks = in_blocks(0).has_value();
    if (!one.blocks) {
      one.a_format = parse_scalar(formats[0]).value();
      one.b_format = parse_scalar(formats[1]).value();
    }
    const Scalar accumulator = parse_scalar(parts[2]).value();
    one.accumulator = {one.card, accumulator, std::stoll(parts[3].substr(1))};
    one.sum = one.blocks ? find_card_sum(one.accumulator, in_blocks(0).value(), in_blocks(1).value()).value()
                         : find_card_sum(one.accumulator, one.a_format, one.b_format).value();
    one.tiles = static_cast<std::size_t>(info.shape[0]);
    one.side = static_cast<std::size_t>(info.shape[1]);
    const auto stored = [](Scalar s) { return s == Scalar::tf32 ? Scalar::f32 : s; };
    one.a = read(file, one.name + ".a", stored(one.a_format));
    one.b = read(file, one.name + ".b", stored(one.b_format));
    one.c = read(file, one.name + ".c", accumulator);
    one.d = read(file, one.name + ".d", Scalar::f32);
    all.push_back(std::move(one));
  }
  return all;
}

/// The bits are equal, or both are NaN and the card is of AMD, whose NaN MMA-Sim leaves open.
inline bool same(Card card, float got, float want) {
  if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want)) return true;
  return std::isnan(got) && std::isnan(want) && (card == Card::mi250 || card == Card::mi300);
}

}  // namespace mantissa::card_vectors
