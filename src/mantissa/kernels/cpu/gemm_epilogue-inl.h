// What follows the sums of a product: scales, bias, rounding, addend, and the store in C's format.
#if defined(MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "mantissa/kernels/cpu/gemm_plan.h"
#include "mantissa/kernels/cpu/loss_count-inl.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Rows of sums, `ld` apart.
template <class T>
struct SumRows {
  T* first;
  std::size_t ld;
  T* Row(std::size_t i) const { return first + i * ld; }
};

template <class T>
class GemmEpilogue {
 public:
  /// Most sums of a row at a time.
  static constexpr std::size_t kColumns = gemm_plan::kTileBytes / sizeof(T);

  explicit GemmEpilogue(const Gemm& g) : g_(g) {}

  static void AddRow(const T* HWY_RESTRICT x, std::size_t n, T* HWY_RESTRICT to) {
    for (std::size_t i = 0; i < n; ++i) to[i] += x[i];
  }

  /// Adds a row's sums of `count` products of parts, `set` apart, in order, and then adds the total to `to`.
  /// Overwrites the first of them.
  static void AddParts(T* parts, std::size_t set, std::size_t count, std::size_t n, T* to) {
    for (std::size_t i = 1; i < count; ++i) AddRow(parts + i * set, n, parts);
    AddRow(parts, n, to);
  }

  /// Multiplies `n` sums of a leaf by the scales of its factors, in tile order.
  void Unscale(T* HWY_RESTRICT x, std::size_t n) const {
    if (g_.accumulator.order != SumOrder::tile) return;
    const float a = g_.a.unscale, b = g_.b.unscale;
    for (const float unscale : {g_.swap_parts ? b : a, g_.swap_parts ? a : b}) {
      if (unscale == 1) continue;
      for (std::size_t i = 0; i < n; ++i) x[i] *= unscale;
    }
  }

  /// Applies the epilogue to `n` ≤ kColumns sums of one row and stores them in C.
  void Finish(std::size_t row, std::size_t column, std::size_t n, T* HWY_RESTRICT x) const {
    using mantissa::HWY_NAMESPACE::LoadRow;
    using mantissa::HWY_NAMESPACE::RoundRow;
    using mantissa::HWY_NAMESPACE::StoreRow;
    using mantissa::HWY_NAMESPACE::ViewRow;
    HWY_ALIGN T buffer[kColumns];
    if (g_.bias != nullptr) AddRow(ViewRow<T>(g_.bias, g_.bias_type, column, n, buffer), n, x);
    if (std::is_same_v<T, float>) RoundRow<T>(x, n, g_.rounded);
    if (g_.addend.data != nullptr) {
      const std::size_t at = row * static_cast<std::size_t>(g_.addend.ld) + column;
      AddRow(ViewRow<T>(g_.addend.data, g_.addend.type, at, n, buffer), n, x);
    }
    const std::size_t to = row * static_cast<std::size_t>(g_.c.ld) + column;
    StoreRow<T>(x, n, g_.c.data, g_.c.type, to);
    if (g_.losses == nullptr) return;
    LoadRow(g_.c.data, g_.c.type, to, n, buffer);
    g_.losses->add(CountRange(x, buffer, n, g_.c.type));
  }

  /// The product over no terms: zeros, through the epilogue.
  void Clear() const {
    if (g_.accumulate) return;
    const auto rows = static_cast<std::size_t>(g_.m), columns = static_cast<std::size_t>(g_.n);
    HWY_ALIGN T zeros[kColumns];
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < columns; column += kColumns) {
        std::fill_n(zeros, kColumns, T{0});
        Finish(row, column, std::min(kColumns, columns - column), zeros);
      }
    }
  }

 private:
  const Gemm& g_;
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
