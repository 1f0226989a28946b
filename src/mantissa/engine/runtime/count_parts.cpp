#include "mantissa/engine/runtime/count_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/runtime/packed.h"
#include "mantissa/kernels/round.h"

namespace mantissa::runtime {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 14;   // elements that a thread counts at once
constexpr std::size_t kPiece = std::size_t{1} << 11;  // elements whose conversions stay in the nearest cache

template <class T>
using Piece = std::array<T, kPiece>;

template <class T>
constexpr Scalar kTypeOf = sizeof(T) == sizeof(double) ? Scalar::f64 : Scalar::f32;

std::size_t elements(const graph::Argument& a) {
  return static_cast<std::size_t>(a.rows * a.width);
}

/// Returns elements [from, from + n) of a tensor, row by row, converted exactly. Converts into `piece` unless
/// they lie in memory like this.
template <class T>
const T* view(const graph::Argument& a, std::size_t from, std::size_t n, Piece<T>& piece) {
  if (a.blocks || a.codes != StateCodes::none) {
    Piece<float> unpacked;
    unpack_elements(a, from, n, unpacked.data());
    std::copy_n(unpacked.data(), n, piece.data());
    return piece.data();
  }
  const auto width = static_cast<std::size_t>(a.width), stride = static_cast<std::size_t>(a.row_stride());
  if (stride == width) {
    if (a.type == kTypeOf<T>) return static_cast<const T*>(a.data) + from;
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

/// Rounds n values to `format`. Overflow and subnormals are those of `how`.
template <class T>
void round_piece(const kernels::Context& ctx, const T* values, std::size_t n, const Factor& how,
                 Scalar format, T* rounded);

/// Splits n values into the parts of `how`, and returns the sums of the parts.
template <class T>
void split_piece(const kernels::Context& ctx, const T* values, std::size_t n, const Factor& how, T* sums) {
  Piece<T> rest, part;
  std::copy_n(values, n, rest.data());
  std::fill_n(sums, n, T{0});
  for (int p = 0; p < how.parts; ++p) {
    round_piece(ctx, rest.data(), n, Factor(how.format), how.format, part.data());
    for (std::size_t i = 0; i < n; ++i) {
      sums[i] += part[i];
      rest[i] = std::isfinite(part[i]) ? rest[i] - part[i] : T{0};
    }
  }
}

template <class T>
void round_piece(const kernels::Context& ctx, const T* values, std::size_t n, const Factor& how,
                 Scalar format, T* rounded) {
  kernels::Context one_thread = ctx;  // a part is converted by the thread that counts it
  one_thread.threads = 1;
  Piece<double> codes;  // enough for every format
  kernels::round_tensor(one_thread, static_cast<std::int64_t>(n), values, kTypeOf<T>, codes.data(), format,
                        how.saturate, how.flush_subnormals);
  load_row(codes.data(), format, 0, n, rounded);
}

template <class T>
ValueCounts factor_counts(const kernels::Context& ctx, const graph::Argument& factor, Scalar format) {
  return count_parts<ValueCounts>(ctx, elements(factor),
                                  [&](ValueCounts& counts, std::size_t from, std::size_t n) {
                                    Piece<T> before_piece, after;
                                    const T* before = view(factor, from, n, before_piece);
                                    if (factor.operand.parts > 1) {
                                      split_piece(ctx, before, n, factor.operand, after.data());
                                    } else {
                                      round_piece(ctx, before, n, factor.operand, format, after.data());
                                    }
                                    counts.add(after.data(), n, format);
                                    counts.add_errors(before, after.data(), n, format);
                                  });
}

template <class T>
ValueCounts weight_counts(const kernels::Context& ctx, const graph::Argument& master,
                          const graph::Argument& copy) {
  // The scale of a tensor in blocks divides its values.
  const float scale = copy.scale == nullptr ? 1.0F : copy.blocks ? 1 / copy.scale->scale : copy.scale->scale;
  return count_parts<ValueCounts>(ctx, elements(copy),
                                  [&](ValueCounts& counts, std::size_t from, std::size_t n) {
                                    Piece<T> before_piece, after_piece, scaled;
                                    const T* before = view(master, from, n, before_piece);
                                    const T* after = view(copy, from, n, after_piece);
                                    if (scale != 1) {
                                      for (std::size_t i = 0; i < n; ++i) scaled[i] = before[i] * T{scale};
                                      before = scaled.data();
                                    }
                                    counts.add(after, n, copy.type);
                                    counts.add_errors(before, after, n, copy.type);
                                  });
}

/// Counts the term, or the sum if `stored` is not null.
template <class T>
ValueCounts term_counts(const kernels::Context& ctx, const CountedTerm& t, const graph::Argument* stored) {
  return count_parts<ValueCounts>(ctx, elements(*t.wide),
                                  [&](ValueCounts& counts, std::size_t from, std::size_t n) {
                                    Piece<T> wide_piece, addend_piece, stored_piece, term, sum;
                                    const T* wide = view(*t.wide, from, n, wide_piece);
                                    const T* addend = view(*t.addend, from, n, addend_piece);
                                    round_piece(ctx, wide, n, Factor(t.rounded), t.rounded, term.data());
                                    for (std::size_t i = 0; i < n; ++i) sum[i] = term[i] + addend[i];
                                    if (stored != nullptr) {
                                      const T* values = view(*stored, from, n, stored_piece);
                                      counts.add(values, n, stored->type);
                                      counts.add_errors(sum.data(), values, n, stored->type);
                                      return;
                                    }
                                    counts.add(term.data(), n, t.rounded);
                                    counts.add_errors(wide, term.data(), n, t.rounded);
                                    counts.add_sums(sum.data(), addend, n);
                                  });
}

bool any_f64(std::initializer_list<Scalar> types) {
  return std::ranges::find(types, Scalar::f64) != types.end();
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
  to.merge(any_f64({factor.type, format}) ? factor_counts<double>(ctx, factor, format)
                                          : factor_counts<float>(ctx, factor, format));
}

void count_weight(const kernels::Context& ctx, Matrix master, const graph::Argument& copy, ValueCounts& to) {
  graph::Argument before = copy;
  before.data = master.data;
  before.type = master.type;
  before.blocks.reset();
  to.merge(any_f64({master.type, copy.type}) ? weight_counts<double>(ctx, before, copy)
                                             : weight_counts<float>(ctx, before, copy));
}

void count_term(const kernels::Context& ctx, const CountedTerm& t, ValueCounts& to) {
  to.merge(any_f64({t.wide->type, t.addend->type}) ? term_counts<double>(ctx, t, nullptr)
                                                   : term_counts<float>(ctx, t, nullptr));
}

void count_sum(const kernels::Context& ctx, const CountedTerm& t, const graph::Argument& stored,
               ValueCounts& to) {
  to.merge(any_f64({t.wide->type, t.addend->type, stored.type}) ? term_counts<double>(ctx, t, &stored)
                                                                : term_counts<float>(ctx, t, &stored));
}

StuckCounts count_stuck(const kernels::Context& ctx, const graph::Argument& stored,
                        const graph::Argument& before, const graph::Argument& wide) {
  return count_parts<StuckCounts>(ctx, elements(stored),
                                  [&](StuckCounts& count, std::size_t from, std::size_t n) {
                                    Piece<double> stored_piece, before_piece, wide_piece;
                                    const double* now = view(stored, from, n, stored_piece);
                                    const double* was = view(before, from, n, before_piece);
                                    const double* exact = view(wide, from, n, wide_piece);
                                    for (std::size_t i = 0; i < n; ++i) {
                                      count.moving += exact[i] != was[i] ? 1 : 0;
                                      count.stuck += now[i] == was[i] && exact[i] != was[i] ? 1 : 0;
                                    }
                                  });
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

Distribution count_distribution(const kernels::Context& ctx, std::int64_t count, ConstMatrix values,
                                double factor) {
  return count_parts<Distribution>(ctx, static_cast<std::size_t>(count),
                                   [&](Distribution& counts, std::size_t from, std::size_t n) {
                                     Piece<double> piece;
                                     load_row(values.data, values.type, from, n, piece.data());
                                     counts.add(piece.data(), n, factor);
                                   });
}

}  // namespace mantissa::runtime
