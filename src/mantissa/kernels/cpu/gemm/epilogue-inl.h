// What follows the sums of a product: scales, bias, rounding, addend, and the store in C's format.
#if defined(MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/kernels/cpu/bf16_pairs.h"
#include "mantissa/kernels/cpu/bf16_round-inl.h"
#include "mantissa/kernels/cpu/gemm/plan.h"
#include "mantissa/kernels/cpu/head/loss_count-inl.h"
#include "mantissa/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

  /// Multiplies `n` sums of a leaf by the scales of its factors, in tile order and in that of a card.
  void Unscale(T* HWY_RESTRICT x, std::size_t n) const {
    if (g_.accumulator.order == SumOrder::chain) return;
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

  /// True if C itself holds the sums: it has their format, and nothing follows them.
  bool Stores() const {
    constexpr bool kF64 = std::is_same_v<T, double>;
    return g_.c.type == (kF64 ? Scalar::f64 : Scalar::f32) && g_.bias == nullptr &&
           g_.addend.data == nullptr && (kF64 || holds(g_.rounded, Scalar::f32));
  }

  /// As Finish for a tile of `sums`. Overwrites them. `normal`: none is subnormal.
  void FinishTile(const gemm_plan::GemmTile& t, const SumRows<T>& sums, bool normal) const {
    if constexpr (std::is_same_v<T, float>) {
      if (t.columns % (2 * HWY_LANES(float)) == 0 && g_.bias == nullptr && g_.losses == nullptr) {
        if (FinishUsual(t, sums, normal)) return;
      }
    }
    for (std::size_t i = 0; i < t.rows; ++i) Finish(t.row + i, t.column, t.columns, sums.Row(i));
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
  /// Finishes a tile of whole pairs of vectors if the formats are usual ones, else returns false.
  bool FinishUsual(const gemm_plan::GemmTile& t, const SumRows<float>& sums, bool normal) const {
    const bool rounds = !holds(g_.rounded, Scalar::f32), bf16 = g_.c.type == Scalar::bf16;
    if ((rounds && g_.rounded != Scalar::bf16) || (!bf16 && g_.c.type != Scalar::f32)) return false;
    if (bf16 && g_.addend.data == nullptr) {  // to round to bf16 twice is to round once
      if (!has_instruction_) {
        RoundRows<BfloatRounding::by_code>(t, sums);
      } else {
        normal ? RoundRows<BfloatRounding::normal>(t, sums) : RoundRows<BfloatRounding::checked>(t, sums);
      }
      return true;
    }
    const auto finish = [&]<Scalar kAddend>() {
      constexpr auto kF32 = Scalar::f32, kBf16 = Scalar::bf16;
      if (rounds) {
        bf16 ? FinishRows<kBf16, kAddend, kBf16>(t, sums) : FinishRows<kBf16, kAddend, kF32>(t, sums);
      } else {
        bf16 ? FinishRows<kF32, kAddend, kBf16>(t, sums) : FinishRows<kF32, kAddend, kF32>(t, sums);
      }
    };
    if (g_.addend.data == nullptr || g_.addend.type == Scalar::f32) {
      finish.template operator()<Scalar::f32>();
    } else if (g_.addend.type == Scalar::bf16) {
      finish.template operator()<Scalar::bf16>();
    } else {
      return false;
    }
    return true;
  }

  /// Rounds a tile to bf16.
  template <BfloatRounding kHow>
  HWY_NOINLINE void RoundRows(const gemm_plan::GemmTile& t, const SumRows<float>& sums) const {
    const hn::ScalableTag<float> d;
    const auto ld = static_cast<std::size_t>(g_.c.ld);
    auto* to = static_cast<std::uint16_t*>(g_.c.data) + t.row * ld + t.column;
    const float* row = sums.first;
    for (std::size_t i = 0; i < t.rows; ++i, row += sums.ld, to += ld) {
      for (std::size_t j = 0; j < t.columns; j += 2 * HWY_LANES(float)) {
        StoreBfloatPair<kHow>(d, hn::LoadU(d, row + j), hn::LoadU(d, row + j + HWY_LANES(float)),
                              reinterpret_cast<std::uint8_t*>(to + j));
      }
    }
  }

  /// Rounds a tile, adds the addend if there is one, and stores it, as Finish does, in given formats.
  template <Scalar kRounded, Scalar kAddend, Scalar kC>
  HWY_NOINLINE void FinishRows(const gemm_plan::GemmTile& t, const SumRows<float>& sums) const {
    using namespace mantissa::HWY_NAMESPACE;  // NOLINT(google-build-using-namespace): functions of vectors
    const hn::ScalableTag<float> d;
    constexpr std::size_t kLanes = HWY_LANES(float), kAddendBytes = bytes_of(kAddend), kBytes = bytes_of(kC);
    const auto ld = static_cast<std::size_t>(g_.c.ld), addend_ld = static_cast<std::size_t>(g_.addend.ld);
    const auto* addend = static_cast<const std::uint8_t*>(g_.addend.data);
    for (std::size_t i = 0; i < t.rows; ++i) {
      const float* row = sums.Row(i);
      auto* to = static_cast<std::uint8_t*>(g_.c.data) + ((t.row + i) * ld + t.column) * kBytes;
      const std::uint8_t* add =
          addend == nullptr ? nullptr : addend + ((t.row + i) * addend_ld + t.column) * kAddendBytes;
      const auto value = [&](std::size_t j) HWY_ATTR {
        auto v = hn::LoadU(d, row + j);
        if constexpr (kRounded != Scalar::f32) v = RoundLanes<kRounded>(d, v);
        return add == nullptr ? v : hn::Add(v, LoadLanes<kAddend>(d, add + j * kAddendBytes));
      };
      for (std::size_t j = 0; j < t.columns; j += 2 * kLanes)
        StoreLanePair<kC>(d, value(j), value(j + kLanes), to + j * kBytes);
    }
  }

  const Gemm& g_;
  const bool has_instruction_ = has_bf16_pairs();  // one that rounds to bf16
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_EPILOGUE_INL_H_
