// Products of the rows of two matrices, with sums over 16 virtual lanes that are joined several rows at a
// time.
#if defined(MANTISSA_KERNELS_CPU_RECURRENCE_ROW_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_RECURRENCE_ROW_PRODUCTS_INL_H_
#undef MANTISSA_KERNELS_CPU_RECURRENCE_ROW_PRODUCTS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_RECURRENCE_ROW_PRODUCTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "mantissa/core/numeric/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using mantissa::HWY_NAMESPACE::JoinLanes;
using mantissa::HWY_NAMESPACE::kVirtualLanes;
using mantissa::HWY_NAMESPACE::LaneTag;

/// Rows that are joined together.
inline constexpr std::size_t kJoinedRows = 4;

/// The virtual lanes of one row's sum.
template <class T>
struct RowSum {
  using D = LaneTag<T>;
  static constexpr std::size_t kLanes = hn::MaxLanes(D());
  static constexpr std::size_t kVectors = kVirtualLanes / kLanes;
  hn::Vec<D> lanes[kVectors];

  HWY_INLINE RowSum() {
    for (std::size_t v = 0; v < kVectors; ++v) lanes[v] = hn::Zero(D());
  }
};

/// Joins groups of four lanes of four rows as (0 + 2) + (1 + 3): lane i of a group becomes that group's sum
/// of row i.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V JoinGroups(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> wide;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)),
          ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto first = hn::BitCast(wide, ab), second = hn::BitCast(wide, ce);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(wide, first, second)),
                 hn::BitCast(d, hn::InterleaveUpper(wide, first, second)));
}

/// to[i] = the sum of rows[i], i < kJoinedRows, in the order that kernels/recurrence.h states.
HWY_INLINE void JoinRows(const RowSum<float>* rows, float* to) {
  using Sum = RowSum<float>;
  const Sum::D d;
  const hn::CappedTag<float, 4> group;
  // Vector v has groups v · kLanes / 4 and on.
  HWY_ALIGN float sums[kVirtualLanes];
  for (std::size_t v = 0; v < Sum::kVectors; ++v)
    hn::Store(JoinGroups(d, rows[0].lanes[v], rows[1].lanes[v], rows[2].lanes[v], rows[3].lanes[v]), d,
              sums + v * Sum::kLanes);
  const auto even = hn::Add(hn::Load(group, sums), hn::Load(group, sums + 8)),
             odd = hn::Add(hn::Load(group, sums + 4), hn::Load(group, sums + 12));
  hn::StoreU(hn::Add(even, odd), group, to);
}

HWY_INLINE void JoinRows(const RowSum<double>* rows, double* to) {
  using Sum = RowSum<double>;
  for (std::size_t i = 0; i < kJoinedRows; ++i) {
    HWY_ALIGN double lanes[kVirtualLanes];
    for (std::size_t v = 0; v < Sum::kVectors; ++v)
      hn::Store(rows[i].lanes[v], Sum::D(), lanes + v * Sum::kLanes);
    to[i] = JoinLanes(lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_RECURRENCE_ROW_PRODUCTS_INL_H_
