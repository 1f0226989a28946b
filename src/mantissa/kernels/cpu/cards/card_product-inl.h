// Products in the order of a card (SumOrder::card): segments of terms, rows and vectors of columns.
#if defined(MANTISSA_KERNELS_CPU_CARDS_CARD_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_CARDS_CARD_PRODUCT_INL_H_
#undef MANTISSA_KERNELS_CPU_CARDS_CARD_PRODUCT_INL_H_
#else
#define MANTISSA_KERNELS_CPU_CARDS_CARD_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/kernels/cpu/cards/coded-inl.h"
#include "mantissa/kernels/cpu/cards/group_sums-inl.h"
#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace card_sums {

/// Terms whose exponents are computed at a time; all groups and promotions end within or at the end.
inline constexpr std::size_t kSegment = kMostPromoted;

/// How a group is added: as a card does, with more than eight products for 32 bits (`wide`), in sums of 16,
/// or by the definition.
enum class GroupLoop : std::uint8_t { narrow, wide, sums, definition };

/// Adds terms [first, first + depth) of one segment to C[kRows, kLanes].
template <GroupSum kSum, GroupLoop kLoop, std::size_t kRows>
HWY_NOINLINE void AddSegment(const CardSum& sum, std::size_t first, std::size_t depth, Terms t, float* c,
                             std::size_t ldc) {
  const Floats d;
  const auto group = static_cast<std::size_t>(sum.group), promotion = static_cast<std::size_t>(sum.promotion);
  V sums[kRows];
  for (std::size_t i = 0; i < kRows; ++i) sums[i] = promotion > 0 ? hn::Zero(d) : hn::LoadU(d, c + i * ldc);
  const std::size_t end = first + depth;
  for (std::size_t at = first; at < end;) {
    t.count = std::min(end, (at / group + 1) * group) - at;
    if constexpr (kLoop == GroupLoop::sums) {
      AddSums(sum, t, sums);
    } else if constexpr (kLoop == GroupLoop::definition) {
      for (std::size_t i = 0; i < kRows; ++i) sums[i] = SlowGroup(sum, t, i, sums[i]);
    } else if constexpr (kSum == GroupSum::truncated) {
      AddTruncated<kLoop == GroupLoop::wide>(sum, t, sums);
    }
    if constexpr (kSum == GroupSum::floored) AddFloored<1>(sum, t, sums);
    if constexpr (kSum == GroupSum::floored_halves) AddFloored<2>(sum, t, sums);
    if constexpr (kSum == GroupSum::pairs) AddPairs(sum, t, at % static_cast<std::size_t>(sum.k) == 0, sums);
    if constexpr (kSum == GroupSum::fma) AddChain(t, sums);
    at += t.count;
    t.Advance();
    if (promotion == 0 || (at % promotion != 0 && at != end)) continue;
    for (std::size_t i = 0; i < kRows; ++i) {
      hn::StoreU(hn::Add(hn::LoadU(d, c + i * ldc), sums[i]), d, c + i * ldc);
      sums[i] = hn::Zero(d);
    }
  }
  for (std::size_t i = 0; promotion == 0 && i < kRows; ++i) hn::StoreU(sums[i], d, c + i * ldc);
}

/// The same for `rows` rows.
template <GroupSum kSum, GroupLoop kLoop>
void AddRows(const CardSum& sum, std::size_t rows, std::size_t first, std::size_t depth, Terms t, float* c,
             std::size_t ldc) {
  const auto some = [&]<std::size_t kRows>() HWY_ATTR {
    for (; rows >= kRows; rows -= kRows, c += kRows * ldc) {
      AddSegment<kSum, kLoop, kRows>(sum, first, depth, t, c, ldc);
      t.Skip(kRows);
    }
  };
  if constexpr (kLoop == GroupLoop::narrow || kLoop == GroupLoop::wide) {
    constexpr std::size_t kMost = HWY_TARGET == HWY_AVX2 ? 3 : 7;  // of kMr rows
    some.template operator()<kMost>();
    if constexpr (kMost > 4) some.template operator()<4>();
  }
  if constexpr (kLoop != GroupLoop::definition) some.template operator()<2>();
  some.template operator()<1>();
}

inline void AddColumns(const CardSum& sum, std::size_t rows, std::size_t first, std::size_t depth,
                       const Terms& t, bool usual_scales, float* c, std::size_t ldc) {
  using enum GroupLoop;
  switch (sum.sum) {
    case GroupSum::truncated:
      if (of_sums(sum.scales)) return AddRows<GroupSum::truncated, sums>(sum, rows, first, depth, t, c, ldc);
      if (!usual_scales) return AddRows<GroupSum::truncated, definition>(sum, rows, first, depth, t, c, ldc);
      return sum.group > 8 && sum.bits > 20
                 ? AddRows<GroupSum::truncated, wide>(sum, rows, first, depth, t, c, ldc)
                 : AddRows<GroupSum::truncated, narrow>(sum, rows, first, depth, t, c, ldc);
    case GroupSum::floored:
      return AddRows<GroupSum::floored, narrow>(sum, rows, first, depth, t, c, ldc);
    case GroupSum::floored_halves:
      return AddRows<GroupSum::floored_halves, narrow>(sum, rows, first, depth, t, c, ldc);
    case GroupSum::pairs:
      return AddRows<GroupSum::pairs, narrow>(sum, rows, first, depth, t, c, ldc);
    case GroupSum::fma:
      return AddRows<GroupSum::fma, narrow>(sum, rows, first, depth, t, c, ldc);
  }
}

/// A[rows, terms], rows ≤ kMr: element (i, k) is at[i * row + k * term].
struct LeftRows {
  const float* at;
  std::size_t row, term;
};

/// The exponents of `count` numbers. Writes whole vectors.
HWY_INLINE void ExponentsOf(const float* values, std::size_t count, int least, std::int32_t* to) {
  const Floats d;
  const std::size_t whole = count / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes)
    hn::Store(Exponents(hn::LoadU(d, values + i), least), Ints(), to + i);
  if (whole == count) return;
  HWY_ALIGN float last[kLanes] = {};
  std::copy(values + whole, values + count, last);
  hn::Store(Exponents(hn::Load(d, last), least), Ints(), to + whole);
}

/// Adds terms of A[rows, …] · B[…, columns] to C, on top of its accumulators. The first of `depth` terms is
/// A's and B's first one and has the number `first`. Rows of B and C are readable, and those of C writable,
/// up to whole vectors.
HWY_NOINLINE inline void AddProduct(const CardSum& sum, std::size_t rows, LeftRows a, const float* b,
                                    std::size_t b_term, std::size_t columns, std::size_t first,
                                    std::size_t depth, float* c, std::size_t ldc) {
  const Floats d;
  HWY_ALIGN float gathered[kSegment * kMr], left_values[kSegment * kMr], right_values[kSegment * kLanes];
  HWY_ALIGN std::int32_t of_left[kSegment * kMr], of_right[kSegment * kLanes];
  const bool scaled = sum.scales == CardScales::e8m0, reads_codes = of_sums(sum.scales);
  const bool in_panel = a.row == 1 && a.term == kMr;
  for (std::size_t k = 0; k < depth;) {
    const std::size_t number = first + k, count = std::min(depth - k, kSegment - number % kSegment);
    const float* left = in_panel ? a.at + k * kMr : gathered;
    const std::size_t width = in_panel ? kMr : rows;
    for (std::size_t j = 0; !in_panel && j < count; ++j) {
      for (std::size_t i = 0; i < rows; ++i) gathered[j * width + i] = a.at[i * a.row + (k + j) * a.term];
    }
    bool usual_left = true;
    if (scaled) usual_left = DecodeCoded(left, count * width, sum.least_a, left_values, of_left);
    if (sum.scales == CardScales::none) ExponentsOf(left, count * width, sum.least_a, of_left);
    for (std::size_t j = 0; j < columns; j += kLanes) {
      const float* right = b + k * b_term + j;
      bool usual = usual_left;
      for (std::size_t i = 0; !reads_codes && i < count; ++i) {
        const float* row = right + i * b_term;
        std::int32_t* exponents = of_right + i * kLanes;
        if (scaled) {
          usual = DecodeCoded(row, kLanes, sum.least_b, right_values + i * kLanes, exponents) && usual;
        } else {
          hn::Store(Exponents(hn::LoadU(d, row), sum.least_b), Ints(), exponents);
        }
      }
      const Terms terms{scaled ? left_values : left,
                        of_left,
                        width,
                        scaled ? right_values : right,
                        scaled ? kLanes : b_term,
                        of_right,
                        left,
                        right,
                        b_term,
                        0};
      AddColumns(sum, rows, number, count, terms, usual, c + j, ldc);
    }
    k += count;
  }
}

}  // namespace card_sums

/// C[m, n] (ldc) from `depth` terms of a panel of A and of a panel of B, m ≤ kMr, n ≤ kNr: adds them to the
/// accumulators in C, from +0 on for TileStore::set. Term 0 opens a group.
inline void CardMicrokernel(const CardSum& sum, std::size_t depth, const float* a, const float* b, float* c,
                            std::size_t ldc, std::size_t m, std::size_t n, TileStore store) {
  HWY_ALIGN float tile[kMr * kNr<float>];
  const bool whole = n == kNr<float>;
  float* to = whole ? c : tile;
  const std::size_t ld = whole ? ldc : kNr<float>;
  if (store == TileStore::set) {
    for (std::size_t i = 0; i < m; ++i) std::fill_n(to + i * ld, kNr<float>, 0.0F);
  } else if (!whole) {
    for (std::size_t i = 0; i < m; ++i) {
      std::copy_n(c + i * ldc, n, tile + i * ld);
      std::fill(tile + i * ld + n, tile + (i + 1) * ld, 0.0F);
    }
  }
  card_sums::AddProduct(sum, m, {a, 1, kMr}, b, kNr<float>, n, 0, depth, to, ld);
  if (whole) return;
  for (std::size_t i = 0; i < m; ++i) std::copy_n(tile + i * ld, n, c + i * ldc);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_CARDS_CARD_PRODUCT_INL_H_
