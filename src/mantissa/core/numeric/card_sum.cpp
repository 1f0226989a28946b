#include "mantissa/core/numeric/card_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "mantissa/core/numeric/convert.h"

namespace mantissa {
namespace {

constexpr int kZeroExponent = -126;
constexpr double kSmallestNormal = 0x1p-126;

/// The exponent of a factor or accumulator whose smallest normal number is 2^least.
int exponent_of(double x, int least) {
  return x == 0 ? kZeroExponent : std::max(std::ilogb(x), least);
}

/// Σ trunc(value · 2^bits / 2^E) over values with exponents, E the largest of them.
struct Aligned {
  double sum = 0;  // in units of 2^(exponent − bits), exact
  int exponent = kZeroExponent * 4;
};

Aligned align(std::span<const double> values, std::span<const int> exponents, int bits) {
  Aligned all;
  for (const int e : exponents) all.exponent = std::max(all.exponent, e);
  for (const double v : values) all.sum += std::trunc(std::ldexp(v, bits - all.exponent));
  return all;
}

constexpr std::uint32_t kScaleBits = 0xff;

/// A coded element, or a factor without a scale.
struct Element {
  double value = 0, significand = 1;  // the latter of the scale
  int exponent = 0;                   // of the scale

  Element(CardScales scales, float factor) : value(factor) {
    if (scales == CardScales::none) return;
    const auto bits = std::bit_cast<std::uint32_t>(factor);
    value = std::bit_cast<float>(bits & ~kScaleBits);
    const auto code = static_cast<std::uint8_t>(bits & kScaleBits);
    if (scales != CardScales::e4m3_of_sums) {
      exponent = code - 127;
      if (code == 255) significand = NAN;
      return;
    }
    float scale = 0;
    load_row(&code, Scalar::e4m3, 0, 1, &scale);
    scale = std::abs(scale);  // the instruction ignores the sign
    if (std::isnan(scale)) {
      significand = scale;
      return;
    }
    exponent = exponent_of(scale, traits(Scalar::e4m3).min_normal_exp);
    significand = std::ldexp(scale, -exponent);
  }
};

/// Products of a group, or sums of 16 of them, and their exponents.
struct Products {
  std::vector<double> values;  // exact
  std::vector<int> exponents;

  Products(const CardSum& sum, std::span<const float> a, std::span<const float> b) {
    const bool sums = of_sums(sum.scales);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Element x(sum.scales, a[i]), y(sum.scales, b[i]);
      const int scale = x.exponent + y.exponent;
      const double product = std::ldexp(x.value * y.value * (x.significand * y.significand), scale);
      if (sums && i % 16 != 0) {
        values.back() += product;
        continue;
      }
      values.push_back(product);
      exponents.push_back(
          sums ? scale : exponent_of(x.value, sum.least_a) + exponent_of(y.value, sum.least_b) + scale);
    }
  }
  double total(double c) const {
    double total = c;
    for (const double v : values) total += v;
    return total;
  }
};

/// The value with `bits` fraction bits, by std::trunc or std::nearbyint; subnormals from 2^least on have
/// fewer.
template <class Round>
double in_bits(double value, int bits, int least, Round round) {
  if (value == 0) return 0;
  const int unit = std::max(std::ilogb(value), least) - bits;
  return std::ldexp(round(std::ldexp(value, -unit)), unit);
}

float truncated(const CardSum& sum, Products p, float c) {
  const double total = p.total(c);
  if (std::isnan(total)) return std::bit_cast<float>(sum.f16 ? 0x7fffe000U : 0x7fffffffU);
  if (std::isinf(total)) return static_cast<float>(total);
  p.values.push_back(c);
  p.exponents.push_back(exponent_of(c, sum.f16 ? traits(Scalar::f16).min_normal_exp : kZeroExponent));
  const Aligned all = align(p.values, p.exponents, sum.bits);
  const double value = std::ldexp(all.sum, all.exponent - sum.bits);
  if (sum.f16) {
    const double rounded = in_bits(value, 10, -14, [](double x) { return std::nearbyint(x); });
    // Sums that round to zero are +0.
    return static_cast<float>(std::abs(rounded) >= 65536 ? std::copysign(HUGE_VAL, rounded) : rounded + 0.0);
  }
  return static_cast<float>(
      in_bits(value, sum.result_bits, kZeroExponent, [](double x) { return std::trunc(x); }) + 0.0);
}

/// The sum of products over [first, n) in steps of `step`.
Aligned every(const Products& p, std::size_t first, std::size_t step, int bits) {
  std::vector<double> values;
  std::vector<int> exponents;
  for (std::size_t i = first; i < p.values.size(); i += step) {
    values.push_back(p.values[i]);
    exponents.push_back(p.exponents[i]);
  }
  return align(values, exponents, bits);
}

/// The sum of even products, and of odd ones, after both are floored where the larger one is aligned.
Aligned halves(const Products& p, int bits) {
  const Aligned even = every(p, 0, 2, bits), odd = every(p, 1, 2, bits);
  const int e = std::max(even.exponent, odd.exponent);
  return {
      std::floor(std::ldexp(even.sum, even.exponent - e)) + std::floor(std::ldexp(odd.sum, odd.exponent - e)),
      e};
}

float floored(const CardSum& sum, const Products& p, float c) {
  const double total = p.total(c);
  if (!std::isfinite(total)) return static_cast<float>(total);
  bool above = false, below = false;  // products outside of f32
  for (const double v : p.values) {
    above = above || v >= 0x1p128;
    below = below || v <= -0x1p128;
  }
  if (above || below) return above && below ? NAN : above ? HUGE_VALF : -HUGE_VALF;
  const bool split = sum.sum == GroupSum::floored_halves;
  const Aligned products = split ? halves(p, sum.bits) : every(p, 0, 1, sum.bits);
  const int of_c = exponent_of(c, kZeroExponent), e = std::max(products.exponent, of_c);
  double s = std::floor(std::ldexp(products.sum, 31 - sum.bits + products.exponent - e));
  if (!split || of_c >= e - 25) s += std::ldexp(std::floor(std::ldexp(double{c}, 24 - e)), 7);
  return static_cast<float>(std::ldexp(s, e - 31));
}

/// A subnormal number becomes a zero of its sign.
float flushed(float x) {
  return std::abs(x) < kSmallestNormal ? std::copysign(0.0F, x) : x;
}

float tree(std::span<const float> terms) {
  if (terms.size() == 1) return terms[0];
  const std::size_t half = terms.size() / 2;
  return flushed(tree(terms.first(half)) + tree(terms.subspan(half)));
}

float pairs(const CardSum& sum, std::span<const float> a, std::span<const float> b, float c) {
  std::vector<float> terms(static_cast<std::size_t>(sum.group), 0.0F);
  const auto factor = [](float x, int least) { return std::abs(x) < std::ldexp(1.0, least) ? 0.0F : x; };
  for (std::size_t i = 0; i < a.size(); ++i)
    terms[i] = flushed(std::fmaf(factor(a[i], sum.least_a), factor(b[i], sum.least_b), 0.0F));
  return flushed(c + tree(terms));
}

/// The smallest normal number of a format, as an exponent.
int least_of(Scalar s) {
  return traits(s).min_normal_exp;
}

/// Sets what accumulator.block says if it is not the instruction's k. Returns false if it says nothing.
bool set_promotion(const Accumulator& accumulator, CardSum& sum) {
  if (accumulator.block < sum.k || kMostPromoted % accumulator.block != 0) return false;
  sum.promotion = accumulator.block;
  return true;
}

}  // namespace

float coded_element(float element, std::uint8_t scale) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(element) & ~kScaleBits) | scale);
}

std::optional<CardSum> find_card_sum(const Accumulator& accumulator, BlockFormat a, BlockFormat b) {
  const BlockInstruction* i = find_block_instruction(accumulator.card, a, b);
  if (i == nullptr || accumulator.format != Scalar::f32) return std::nullopt;
  CardSum sum{.k = i->k, .group = i->k, .bits = i->bits};
  sum.least_a = traits(a).min_normal_exp;
  sum.least_b = traits(b).min_normal_exp;
  sum.scales = !i->fours                      ? CardScales::e8m0
               : traits(a).power_of_two_scale ? CardScales::e8m0_of_sums
                                              : CardScales::e4m3_of_sums;
  const bool usual = accumulator.block == 0 || accumulator.block == i->k;
  if (!usual && !set_promotion(accumulator, sum)) return std::nullopt;
  return sum;
}

std::optional<CardSum> find_card_sum(const Accumulator& accumulator, Scalar a, Scalar b) {
  const std::optional<Scalar> factor = factor_on(accumulator.card, a, b);
  if (!factor) return std::nullopt;
  const Instruction* usual = find_instruction(accumulator.card, *factor);
  const Instruction* chosen = find_instruction(accumulator.card, *factor, accumulator.block);
  const Instruction& i = chosen != nullptr ? *chosen : *usual;
  const bool f16 = accumulator.format == Scalar::f16;
  if (f16 && !i.f16) return std::nullopt;
  CardSum sum{i.sum, i.k, i.group, i.bits, f16 ? 10 : i.result_bits, f16};
  const bool both = bytes_of(*factor) == 1;  // 8-bit factors keep their own formats
  sum.least_a = least_of(both ? a : *factor);
  sum.least_b = least_of(both ? b : *factor);
  if (chosen == nullptr && !set_promotion(accumulator, sum)) return std::nullopt;
  return sum;
}

bool takes_block(Card card, std::int64_t block) {
  if (block == 0) return true;
  return std::ranges::any_of(instructions(), [&](const Instruction& i) {
    return i.card == card && (i.k == block || (block > i.k && kMostPromoted % block == 0));
  });
}

float add_group(const CardSum& sum, std::span<const float> a, std::span<const float> b, float c) {
  switch (sum.sum) {
    case GroupSum::truncated:
      return truncated(sum, Products(sum, a, b), c);
    case GroupSum::floored:
    case GroupSum::floored_halves:
      return floored(sum, Products(sum, a, b), c);
    case GroupSum::pairs:
      return pairs(sum, a, b, c);
    case GroupSum::fma:
      break;
  }
  for (std::size_t i = 0; i < a.size(); ++i) c = std::fmaf(a[i], b[i], c);
  return c;
}

float card_dot(const CardSum& sum, std::span<const float> a, std::span<const float> b, float c) {
  const auto group = static_cast<std::size_t>(sum.group), k = static_cast<std::size_t>(sum.k);
  const auto promotion = static_cast<std::size_t>(sum.promotion);
  float own = promotion > 0 ? 0.0F : c;
  for (std::size_t i = 0; i < a.size(); i += group) {
    const std::size_t n = std::min(group, a.size() - i);
    if (sum.sum == GroupSum::pairs && i % k == 0 && std::abs(own) < kSmallestNormal) own = 0;
    own = add_group(sum, a.subspan(i, n), b.subspan(i, n), own);
    const std::size_t end = i + n;
    if (promotion == 0 || (end % promotion != 0 && end != a.size())) continue;
    c += own;
    own = 0;
  }
  return promotion > 0 ? c : own;
}

}  // namespace mantissa
