// Shared by the tests of row kernels: matrices in any format, extents, the contexts that must give the same
// bits, and the headers' order of summation.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/base/sanitized.h"
#include "core/numeric/element.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels::testing {

constexpr unsigned kSeed = 20261121;

/// The instruction set of the tests' conversions. Querying the machine for each element would be too slow.
inline SimdTarget converter() {
  static const SimdTarget target = simd_targets().front();
  return target;
}

/// A matrix in some format whose rows are `ld` apart. Kernels must not write between the rows.
struct Tensor {
  Scalar type = Scalar::f32;
  std::int64_t rows = 0, columns = 0, ld = 0;
  std::vector<std::byte> bytes;

  Tensor(Scalar format, std::int64_t r, std::int64_t c, std::int64_t gap = 0)
      : type(format), rows(r), columns(c), ld(c + gap) {
    bytes.assign(static_cast<std::size_t>(rows * ld) * bytes_of(type), std::byte{0x11});
  }
  Tensor(Scalar format, std::int64_t r, std::int64_t c, const double* values) : Tensor(format, r, c) {
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) set(i, j, values[i * c + j]);
    }
  }

  operator Matrix() { return {bytes.data(), type, ld}; }
  operator ConstMatrix() const { return {bytes.data(), type, ld}; }
  std::size_t at(std::int64_t i, std::int64_t j) const { return static_cast<std::size_t>(i * ld + j); }
  void set(std::int64_t i, std::int64_t j, double x) {
    mantissa::testing::set_element(bytes.data(), type, at(i, j), x);
  }
  double get(std::int64_t i, std::int64_t j) const {
    return mantissa::testing::element(bytes.data(), type, at(i, j));
  }
  /// Returns the values without gaps.
  std::vector<double> values() const {
    std::vector<double> all;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) all.push_back(get(i, j));
    }
    return all;
  }
  Tensor& fill_normal(std::mt19937& random, double mean = 0) {
    std::normal_distribution<double> normal(mean);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) set(i, j, normal(random));
    }
    return *this;
  }
  friend bool operator==(const Tensor& a, const Tensor& b) { return a.type == b.type && a.bytes == b.bytes; }
};

inline bool is_f64(Scalar s) {
  return s == Scalar::f64;
}

/// Returns true for the sets that differ from avx512 in products alone (gemm_case.h).
inline bool has_tiles(Simd simd) {
  return simd == Simd::amx || simd == Simd::amx_model;
}

/// Every instruction set of this machine with each number of threads.
inline std::vector<Context> contexts() {
  std::vector<Context> all;
  for (const Simd simd : kSimds) {
    if (!is_supported(simd) || has_tiles(simd)) continue;
    for (const int threads : mantissa::testing::thread_counts())
      all.push_back({.simd = simd, .threads = threads});
  }
  return all;
}

inline std::string describe(const Context& ctx) {
  return std::string(name(ctx.simd)) + ", " + std::to_string(ctx.threads) + " threads";
}

/// Rows of the given lengths, each a segment from position 0.
struct Batch {
  std::vector<Row> rows;
  std::vector<Segment> segments;
  std::int64_t tokens = 0, rows_per_leaf = 1;

  explicit Batch(const std::vector<std::int64_t>& lengths, std::int64_t leaf = 1) : rows_per_leaf(leaf) {
    for (const std::int64_t n : lengths) {
      rows.push_back({tokens, n});
      segments.push_back({tokens, n, 0, 0});
      tokens += n;
    }
  }
  Extent extent() const { return {tokens, rows, segments, rows_per_leaf}; }
};

/// Sums `add(i, lane)` over 16 virtual lanes, where `add` adds element i to a lane. Lanes are joined 8, 4,
/// 2, 1.
template <class T>
T lane_sum(std::int64_t n, const std::function<T(std::int64_t, T)>& add) {
  T lanes[16] = {};
  for (std::int64_t i = 0; i < n; ++i) lanes[i % 16] = add(i, lanes[i % 16]);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

/// Computes start + Σ over the tokens of `batch` in the order of sums over tokens. `add_block(begin, end,
/// leaf)` returns the leaf with tokens [begin, end) added.
template <class T>
T block_sum(const Batch& batch, T start, const std::function<T(std::int64_t, std::int64_t, T)>& add_block) {
  const std::int64_t rows = static_cast<std::int64_t>(batch.rows.size());
  for (std::int64_t first = 0; first < rows; first += batch.rows_per_leaf) {
    T leaf = 0;
    for (std::int64_t r = first; r < std::min(rows, first + batch.rows_per_leaf); ++r) {
      const Row& row = batch.rows[static_cast<std::size_t>(r)];
      const std::int64_t end = row.begin + row.length;
      for (std::int64_t begin = row.begin; begin < end; begin += kSumBlock)
        leaf = add_block(begin, std::min(end, begin + kSumBlock), leaf);
    }
    start += leaf;
  }
  return start;
}

/// Like block_sum, where `chain(t, sum)` adds token t to its block's chain.
template <class T>
T token_sum(const Batch& batch, T start, const std::function<T(std::int64_t, T)>& chain) {
  return block_sum<T>(batch, start, [&](std::int64_t begin, std::int64_t end, T leaf) {
    T block = 0;
    for (std::int64_t t = begin; t < end; ++t) block = chain(t, block);
    return leaf + block;
  });
}

/// Returns the largest error of rounding x to nearest in `s`.
inline double rounding_error(Scalar s, double x) {
  const double subnormal = std::ldexp(1.0, traits(s).min_normal_exp - traits(s).mantissa_bits - 1);
  return std::max(unit_roundoff(s) * std::abs(x), subnormal);
}

}  // namespace mantissa::kernels::testing
