// Loops over rows in arithmetic precision, and rows that are written back in their storage format.
#if defined(MANTISSA_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ROWS_INL_H_
#undef MANTISSA_KERNELS_CPU_ROWS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/tensor/storage.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RoundRow;
using mantissa::HWY_NAMESPACE::StoreRow;
using mantissa::HWY_NAMESPACE::ViewRow;

/// Calls f(d, i) so that the vectors [i, i + Lanes(d)) cover [0, n): full vectors, then single lanes. A
/// function that computes each lane separately gets the same bits from both.
template <class T, class F>
HWY_INLINE void ForEachVector(std::size_t n, const F& f) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> one;
  std::size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) f(d, i);
  for (; i < n; ++i) f(one, i);
}

/// to[i] += from[i].
template <class T>
HWY_INLINE void AddRow(const T* from, std::size_t n, T* to) {
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  });
}

/// True if writing a T to memory of `type` stores the rounded value bit for bit.
template <class T>
HWY_INLINE bool IsStoredAs(Scalar type) {
  return type == (std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32);
}

/// Elements [offset, offset + n) of a matrix to write: in place if they are stored as T, else in `buffer`
/// until Store() rounds them.
template <class T>
class OutRow {
 public:
  OutRow(void* dst, Scalar type, std::size_t offset, std::size_t n, T* buffer)
      : dst_(dst), type_(type), offset_(offset), n_(n), direct_(IsStoredAs<T>(type)) {
    data_ = direct_ ? static_cast<T*>(dst) + offset : buffer;
  }
  T* data() const { return data_; }
  void Load() {
    if (!direct_) LoadRow(dst_, type_, offset_, n_, data_);
  }
  void Store() const {
    if (!direct_) StoreRow(data_, n_, dst_, type_, offset_);
  }

 private:
  void* dst_;
  Scalar type_;
  std::size_t offset_, n_;
  bool direct_;
  T* data_;
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ROWS_INL_H_
