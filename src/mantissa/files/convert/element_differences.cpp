#include "mantissa/files/convert/element_differences.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/convert/pieces.h"

namespace mantissa::convert {
namespace {

bool is_integer(io::Dtype dtype) {
  switch (dtype) {
    case io::Dtype::i64:
    case io::Dtype::i32:
    case io::Dtype::i16:
    case io::Dtype::i8:
    case io::Dtype::u64:
    case io::Dtype::u32:
    case io::Dtype::u16:
    case io::Dtype::u8:
    case io::Dtype::boolean:
      return true;
    default:
      return false;
  }
}

template <class Integer>
void load_integers(const std::byte* stored, std::size_t n, long double* out) {
  for (std::size_t i = 0; i < n; ++i) {
    Integer value;
    std::memcpy(&value, stored + i * sizeof value, sizeof value);
    out[i] = static_cast<long double>(value);
  }
}

/// Loads values without loss. A long double represents every 64-bit integer.
void load(const std::vector<std::byte>& stored, io::Dtype dtype, std::size_t n, SimdTarget target,
          std::vector<double>& out) {
  out.resize(n);
  load_row(stored.data(), *io::scalar_of(dtype), 0, n, out.data(), target);
}
void load(const std::vector<std::byte>& stored, io::Dtype dtype, std::size_t n, SimdTarget target,
          std::vector<long double>& out) {
  out.resize(n);
  switch (dtype) {
    case io::Dtype::i64:
      return load_integers<std::int64_t>(stored.data(), n, out.data());
    case io::Dtype::i32:
      return load_integers<std::int32_t>(stored.data(), n, out.data());
    case io::Dtype::i16:
      return load_integers<std::int16_t>(stored.data(), n, out.data());
    case io::Dtype::i8:
      return load_integers<std::int8_t>(stored.data(), n, out.data());
    case io::Dtype::u64:
      return load_integers<std::uint64_t>(stored.data(), n, out.data());
    case io::Dtype::u32:
      return load_integers<std::uint32_t>(stored.data(), n, out.data());
    case io::Dtype::u16:
      return load_integers<std::uint16_t>(stored.data(), n, out.data());
    case io::Dtype::u8:
    case io::Dtype::boolean:
      return load_integers<std::uint8_t>(stored.data(), n, out.data());
    default: {
      std::vector<double> wide;
      load(stored, dtype, n, target, wide);
      std::copy(wide.begin(), wide.end(), out.begin());
    }
  }
}

/// A piece of both sides, and the index of its first element.
struct StoredPair {
  std::vector<std::byte> a, b;
  std::uint64_t first = 0;
  std::size_t n = 0;
};

void count_difference(ElementDifferences& d, std::uint64_t index) {
  ++d.differ;
  if (!d.first) d.first = index;
  if (!d.first_bits) d.first_bits = index;
}

/// Returns true if element `i` has the same bytes on both sides, which have one dtype of `width` bytes.
bool same_bytes(const StoredPair& pair, std::size_t i, std::size_t width) {
  return std::memcmp(pair.a.data() + i * width, pair.b.data() + i * width, width) == 0;
}

template <class T>
void measure(T a, T b, std::optional<Scalar> unit, ElementDifferences& d) {
  const T error = b - a, magnitude = std::abs(error);
  const T larger = std::max(std::abs(a), std::abs(b));
  d.max_abs = std::max(d.max_abs, static_cast<double>(magnitude));
  d.sum_abs += static_cast<double>(magnitude);
  d.sum += static_cast<double>(error);
  d.sum_squares += static_cast<double>(error * error);
  if (unit) {
    const double steps = static_cast<double>(magnitude) / ulp(static_cast<double>(larger), *unit);
    d.max_ulp = std::max(d.max_ulp, steps);
  }
}

template <class T>
ElementDifferences compare_numbers(const StoredPair& pair, io::Dtype dtype_a, io::Dtype dtype_b,
                                   std::optional<Scalar> unit, SimdTarget target) {
  std::vector<T> a, b;
  load(pair.a, dtype_a, pair.n, target, a);
  load(pair.b, dtype_b, pair.n, target, b);
  const bool one_dtype = dtype_a == dtype_b;
  const std::size_t width = io::bytes_of(dtype_a);
  ElementDifferences d;
  d.count = pair.n;
  for (std::size_t i = 0; i < pair.n; ++i) {
    const std::uint64_t index = pair.first + i;
    const bool finite_a = std::isfinite(a[i]), finite_b = std::isfinite(b[i]);
    if (finite_a) d.largest = std::max(d.largest, static_cast<double>(std::abs(a[i])));
    if (finite_b) d.largest = std::max(d.largest, static_cast<double>(std::abs(b[i])));
    if (finite_a && finite_b) {
      ++d.measured;
      d.sum_squares_a += static_cast<double>(a[i] * a[i]);
    }
    if (a[i] == b[i]) {
      if (std::signbit(a[i]) == std::signbit(b[i])) continue;
      ++d.zero_signs;
      if (!d.first_bits) d.first_bits = index;
    } else if (std::isnan(a[i]) && std::isnan(b[i])) {
      if (!one_dtype || same_bytes(pair, i, width)) continue;
      ++d.nan_bits;
      if (!d.first_bits) d.first_bits = index;
    } else {
      if (!d.first) {
        d.first_a = static_cast<double>(a[i]);
        d.first_b = static_cast<double>(b[i]);
      }
      count_difference(d, index);
      if (finite_a && finite_b) {
        measure(a[i], b[i], unit, d);
      } else {
        ++d.nonfinite;
      }
    }
  }
  return d;
}

ElementDifferences compare_bytes(const StoredPair& pair, bool one_dtype, std::size_t width) {
  ElementDifferences d;
  d.count = pair.n;
  for (std::size_t i = 0; i < pair.n; ++i) {
    if (!one_dtype || !same_bytes(pair, i, width)) count_difference(d, pair.first + i);
  }
  return d;
}

std::vector<std::byte> read_piece(const TensorSide& side, std::uint64_t first, std::size_t n) {
  const std::size_t width = io::bytes_of(side.tensor->dtype);
  std::vector<std::byte> stored(n * width);
  side.files->read(side.tensor->name, stored, first * width);
  return stored;
}

}  // namespace

void ElementDifferences::merge(const ElementDifferences& next) {
  if (!first && next.first) {
    first_a = next.first_a;
    first_b = next.first_b;
  }
  if (!first) first = next.first;
  if (!first_bits) first_bits = next.first_bits;
  count += next.count;
  differ += next.differ;
  nonfinite += next.nonfinite;
  zero_signs += next.zero_signs;
  nan_bits += next.nan_bits;
  measured += next.measured;
  max_abs = std::max(max_abs, next.max_abs);
  sum_abs += next.sum_abs;
  sum += next.sum;
  sum_squares += next.sum_squares;
  sum_squares_a += next.sum_squares_a;
  largest = std::max(largest, next.largest);
  max_ulp = std::max(max_ulp, next.max_ulp);
}

bool have_numbers(io::Dtype a, io::Dtype b) {
  return (is_integer(a) || io::scalar_of(a)) && (is_integer(b) || io::scalar_of(b));
}

ElementDifferences compare_elements(const TensorSide& a, const TensorSide& b, std::optional<Scalar> unit,
                                    const kernels::Context& ctx) {
  const io::Dtype dtype_a = a.tensor->dtype, dtype_b = b.tensor->dtype;
  const SimdTarget target = kernels::simd_target(ctx.simd);
  const bool numbers = have_numbers(dtype_a, dtype_b);
  const bool integers = is_integer(dtype_a) || is_integer(dtype_b);
  const auto compare = [&](std::uint64_t first, std::size_t n) {
    const StoredPair pair{read_piece(a, first, n), read_piece(b, first, n), first, n};
    if (!numbers) return compare_bytes(pair, dtype_a == dtype_b, io::bytes_of(dtype_a));
    if (integers) return compare_numbers<long double>(pair, dtype_a, dtype_b, unit, target);
    return compare_numbers<double>(pair, dtype_a, dtype_b, unit, target);
  };
  ElementDifferences all;
  const auto count = static_cast<std::uint64_t>(a.tensor->count());
  for (const ElementDifferences& piece : over_pieces<ElementDifferences>(ctx, count, compare))
    all.merge(piece);
  return all;
}

}  // namespace mantissa::convert
