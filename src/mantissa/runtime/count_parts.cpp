#include "mantissa/runtime/count_parts.h"

#include <algorithm>
#include <array>
#include <vector>

#include "mantissa/kernels/quantize.h"
#include "mantissa/numeric/convert.h"

namespace mantissa::runtime {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 14;   // elements that a thread counts at once
constexpr std::size_t kPiece = std::size_t{1} << 11;  // elements whose conversions stay in the nearest cache

template <class T>
using Piece = std::array<T, kPiece>;

std::size_t elements(const graph::Argument& a) {
  return static_cast<std::size_t>(a.rows * a.width);
}

/// Returns elements [from, from + n) of a tensor, row by row, converted exactly. Converts into `piece` unless
/// they lie in memory like this.
template <class T>
const T* view(const graph::Argument& a, std::size_t from, std::size_t n, Piece<T>& piece) {
  constexpr Scalar kType = sizeof(T) == sizeof(double) ? Scalar::f64 : Scalar::f32;
  const auto width = static_cast<std::size_t>(a.width), stride = static_cast<std::size_t>(a.row_stride());
  if (stride == width) {
    if (a.type == kType) return static_cast<const T*>(a.data) + from;
    load_row(a.data, a.type, from, n, piece.data());
    return piece.data();
  }
  for (std::size_t done = 0; done < n;) {
    const std::size_t row = (from + done) / width, column = (from + done) % width;
    const std::size_t count = std::min(n - done, width - column);
    load_row(a.data, a.type, row * stride + column, count, piece.data() + done);
    done += count;
  }
  return piece.data();
}

/// Returns the sum of the counts of all parts of `n` elements, in order. count(counts, from, n) counts a
/// piece of a part.
template <class Counts, class Count>
Counts count_parts(const kernels::Context& ctx, std::size_t n, const Count& count) {
  std::vector<Counts> parts((n + kPart - 1) / kPart);
  kernels::parallel_for(ctx, static_cast<std::int64_t>(parts.size()), [&](std::int64_t part, int) {
    const auto i = static_cast<std::size_t>(part);
    const std::size_t end = std::min(n, (i + 1) * kPart);
    for (std::size_t from = i * kPart; from < end; from += kPiece)
      count(parts[i], from, std::min(kPiece, end - from));
  });
  Counts all;
  for (const Counts& part : parts) all.merge(part);
  return all;
}

template <class T>
ValueCounts result_counts(const kernels::Context& ctx, const CountedResult& r) {
  return count_parts<ValueCounts>(
      ctx, elements(*r.stored), [&](ValueCounts& counts, std::size_t from, std::size_t n) {
        Piece<T> stored_piece, wide_piece, addend_piece;
        const T* stored = view(*r.stored, from, n, stored_piece);
        counts.add(stored, n, r.stored->type);
        const T* wide = r.wide == nullptr ? stored : view(*r.wide, from, n, wide_piece);
        if (r.wide != nullptr) counts.add_errors(wide, stored, n, r.rounded);
        // Compare the sum before rounding: a sum that rounding flushes to zero has not cancelled.
        if (r.addend != nullptr) counts.add_sums(wide, view(*r.addend, from, n, addend_piece), n);
      });
}

template <class T>
ValueCounts factor_counts(const kernels::Context& ctx, const graph::Argument& factor, Scalar format) {
  kernels::Context one_thread = ctx;  // a part is converted by the thread that counts it
  one_thread.threads = 1;
  return count_parts<ValueCounts>(
      ctx, elements(factor), [&](ValueCounts& counts, std::size_t from, std::size_t n) {
        constexpr Scalar kType = sizeof(T) == sizeof(double) ? Scalar::f64 : Scalar::f32;
        Piece<T> before_piece, after;
        Piece<double> codes;  // enough for every format
        const T* before = view(factor, from, n, before_piece);
        kernels::round_to(one_thread, static_cast<std::int64_t>(n), before, kType, codes.data(), format,
                          factor.operand.saturate, factor.operand.flush_subnormals);
        load_row(codes.data(), format, 0, n, after.data());
        counts.add(after.data(), n, format);
        counts.add_errors(before, after.data(), n, format);
      });
}

}  // namespace

void count_result(const kernels::Context& ctx, const CountedResult& r, ValueCounts& to) {
  bool f64 = r.rounded == Scalar::f64;
  for (const graph::Argument* a : {r.stored, r.wide, r.addend})
    f64 = f64 || (a != nullptr && a->type == Scalar::f64);
  to.merge(f64 ? result_counts<double>(ctx, r) : result_counts<float>(ctx, r));
}

void count_factor(const kernels::Context& ctx, const graph::Argument& factor, Scalar format,
                  ValueCounts& to) {
  const bool f64 = factor.type == Scalar::f64 || format == Scalar::f64;
  to.merge(f64 ? factor_counts<double>(ctx, factor, format) : factor_counts<float>(ctx, factor, format));
}

ErrorStats count_difference(const kernels::Context& ctx, const graph::Argument& exact,
                            const graph::Argument& values) {
  return count_parts<ErrorStats>(ctx, elements(exact),
                                 [&](ErrorStats& errors, std::size_t from, std::size_t n) {
                                   Piece<double> exact_piece, values_piece;
                                   errors.add_row(view(exact, from, n, exact_piece),
                                                  view(values, from, n, values_piece), n, Scalar::f64);
                                 });
}

}  // namespace mantissa::runtime
