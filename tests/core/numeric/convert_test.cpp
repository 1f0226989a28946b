#include "mantissa/core/numeric/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "core/numeric/reference.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::convert_test {
namespace {

using testing::bits;

/// An instruction set and a format.
using Case = std::tuple<SimdTarget, Scalar>;

class Rows : public ::testing::TestWithParam<Case> {
 protected:
  SimdTarget target() const { return std::get<0>(GetParam()); }
  Scalar scalar() const { return std::get<1>(GetParam()); }
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return std::string(name(std::get<1>(info.param))) + "_target" + std::to_string(std::get<0>(info.param));
}
INSTANTIATE_TEST_SUITE_P(EveryTarget, Rows,
                         ::testing::Combine(::testing::ValuesIn(simd_targets()),
                                            ::testing::ValuesIn(kScalars)),
                         case_name);

std::uint64_t read_code(const std::byte* p, Scalar s) {
  std::uint64_t code = 0;
  std::memcpy(&code, p, bytes_of(s));
  return code;
}

template <class T>
constexpr Scalar kOwn = std::is_same_v<T, double> ? Scalar::f64 : Scalar::f32;

/// True for conversions that only move bits: a signalling NaN stays signalling.
template <class T>
bool only_moves(Scalar s) {
  return s == kOwn<T> || (std::is_same_v<T, float> && (s == Scalar::bf16 || s == Scalar::tf32));
}

template <class T>
void expect_stored_as_scalar(const std::vector<T>& row, Scalar s, SimdTarget target) {
  std::vector<std::byte> stored(row.size() * bytes_of(s));
  store_row(row.data(), row.size(), stored.data(), s, 0, target);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint64_t expected = s == kOwn<T> ? bits(row[i]) : encode(static_cast<double>(row[i]), s);
    ASSERT_EQ(read_code(stored.data() + i * bytes_of(s), s), expected)
        << std::hexfloat << row[i] << " at " << i;
  }
}

template <class T>
void expect_rounded_as_scalar(const std::vector<T>& row, Scalar s, SimdTarget target) {
  std::vector<T> rounded = row;
  round_row(rounded.data(), rounded.size(), s, target);
  const bool unchanged = s == Scalar::f64 || s == kOwn<T>;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const T expected = unchanged ? row[i] : static_cast<T>(round_to(static_cast<double>(row[i]), s));
    ASSERT_EQ(bits(rounded[i]), bits(expected)) << std::hexfloat << row[i] << " at " << i;
  }
}

template <class T>
void expect_loaded_as_scalar(const std::vector<std::byte>& stored, Scalar s, SimdTarget target) {
  std::vector<T> row(stored.size() / bytes_of(s));
  load_row(stored.data(), s, 0, row.size(), row.data(), target);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::uint64_t code = read_code(stored.data() + i * bytes_of(s), s);
    const double value = decode(code, s);
    auto expected = bits(static_cast<T>(value));
    if (std::isnan(value) && only_moves<T>(s)) {
      expected = static_cast<decltype(expected)>(s == Scalar::bf16 ? code << 16 : code);
    }
    ASSERT_EQ(bits(row[i]), expected) << std::hex << code << " at " << i;
  }
}

/// Every code of the small formats; random codes of the others.
std::vector<std::byte> codes(Scalar s) {
  const std::size_t count = bytes_of(s) <= 2 ? testing::code_count(s) : 1'000'003;
  std::vector<std::byte> out(count * bytes_of(s));
  std::mt19937_64 random(7);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t code = bytes_of(s) <= 2 ? i : random();
    if (s == Scalar::tf32) code &= ~std::uint64_t{0x1fff};
    std::memcpy(out.data() + i * bytes_of(s), &code, bytes_of(s));
  }
  return out;
}

TEST_P(Rows, WidenEveryCodeExactly) {
  expect_loaded_as_scalar<float>(codes(scalar()), scalar(), target());
  expect_loaded_as_scalar<double>(codes(scalar()), scalar(), target());
}

TEST_P(Rows, NarrowRandomF32AsTheScalarCode) {
  const std::vector<float> row = testing::random_f32(1'500'037, 11);
  expect_stored_as_scalar(row, scalar(), target());
  expect_rounded_as_scalar(row, scalar(), target());
}

TEST_P(Rows, NarrowRandomF64AsTheScalarCode) {
  std::vector<double> row = testing::random_f64(500'003, 12);
  const std::vector<double> near = testing::random_near_range(scalar(), 1'000'017, 13);
  row.insert(row.end(), near.begin(), near.end());
  expect_stored_as_scalar(row, scalar(), target());
  expect_rounded_as_scalar(row, scalar(), target());
}

TEST_P(Rows, NarrowValuesNearTiesAsTheScalarCode) {
  const Scalar grid = traits(scalar()).mantissa_bits > 10 ? Scalar::bf16 : scalar();
  const std::vector<double> wide = testing::critical_values(grid);
  expect_stored_as_scalar(wide, scalar(), target());
  expect_rounded_as_scalar(wide, scalar(), target());
  // The f32 neighbours of values and midpoints, which are f32 values themselves.
  std::vector<float> row;
  for (const double x : wide) {
    const float f = static_cast<float>(x);
    row.insert(row.end(), {f, std::nextafter(f, 0.0f), std::nextafter(f, INFINITY)});
  }
  expect_stored_as_scalar(row, scalar(), target());
  expect_rounded_as_scalar(row, scalar(), target());
}

TEST_P(Rows, WriteOnlyTheirElements) {
  const Scalar s = scalar();
  const std::vector<float> row = testing::random_f32(70, 14);
  constexpr std::size_t kOffset = 3, kMargin = 8;
  constexpr std::byte kGuard{0xa5};
  for (std::size_t n = 0; n <= row.size(); ++n) {
    std::vector<std::byte> all(row.size() * bytes_of(s));
    store_row(row.data(), row.size(), all.data(), s, 0, target());
    std::vector<std::byte> stored((kOffset + n) * bytes_of(s) + kMargin, kGuard);
    store_row(row.data(), n, stored.data(), s, kOffset, target());
    std::vector<std::byte> expected(stored.size(), kGuard);
    std::copy_n(all.begin(), n * bytes_of(s),
                expected.begin() + static_cast<std::ptrdiff_t>(kOffset * bytes_of(s)));
    ASSERT_EQ(stored, expected) << n;

    std::vector<float> whole(row.size()), part(n + 1, 0.5f);
    load_row(all.data(), s, 0, row.size(), whole.data(), target());
    load_row(stored.data(), s, kOffset, n, part.data(), target());
    ASSERT_EQ(std::memcmp(part.data(), whole.data(), n * sizeof(float)), 0) << n;
    ASSERT_EQ(part[n], 0.5f);

    std::vector<float> rounded = row;
    round_row(rounded.data(), n, s, target());
    ASSERT_EQ(std::memcmp(rounded.data() + n, row.data() + n, (row.size() - n) * sizeof(float)), 0) << n;
  }
}

TEST_P(Rows, RoundingIsIdempotent) {
  std::vector<float> row = testing::random_f32(100'003, 15);
  round_row(row.data(), row.size(), scalar(), target());
  std::vector<float> again = row;
  round_row(again.data(), again.size(), scalar(), target());
  EXPECT_EQ(std::memcmp(again.data(), row.data(), row.size() * sizeof(float)), 0);
}

TEST(SimdTargets, ListEveryCompiledTargetOfThisMachine) {
  const std::vector<SimdTarget> targets = simd_targets();
  ASSERT_FALSE(targets.empty());
  std::vector<std::size_t> indices;
  for (const SimdTarget t : targets) indices.push_back(simd_index(t));
  EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
  EXPECT_EQ(std::adjacent_find(indices.begin(), indices.end()), indices.end());
  EXPECT_EQ(simd_index(kBestTarget), indices.front());
}

/// Yields the code of every f32 in order of magnitude, from the list of the format's values: a value rounds
/// according to the last midpoint before it, and a midpoint to the even code.
class GridWalk {
 public:
  explicit GridWalk(Scalar s) : grid_(testing::positive_values(s)) {}

  std::uint32_t next(float x) {
    if (std::isinf(x)) return overflow();
    while (code_ + 1 < grid_.size() && is_past(x)) ++code_;
    return code_ + 1 < grid_.size() ? static_cast<std::uint32_t>(code_) : overflow();
  }

 private:
  bool is_past(double x) const {
    const double midpoint = (grid_[code_] + grid_[code_ + 1]) / 2;
    return x > midpoint || (x == midpoint && code_ % 2 == 1);
  }
  std::uint32_t overflow() const {
    return static_cast<std::uint32_t>(grid_.size() - 1);
  }  // inf, or the NaN of e4m3

  std::vector<double> grid_;
  std::size_t code_ = 0;
};

class SlowRows : public Rows {};
INSTANTIATE_TEST_SUITE_P(Slow, SlowRows,
                         ::testing::Combine(::testing::ValuesIn(simd_targets()),
                                            ::testing::ValuesIn(testing::kNarrow)),
                         case_name);

TEST_P(SlowRows, NarrowEveryF32ToTheNearestListedValue) {
  const Scalar s = scalar();
  constexpr std::uint32_t kInf = 0x7f800000, kChunk = 1 << 16;
  GridWalk walk(s);
  std::vector<float> plus(kChunk), minus(kChunk);
  std::vector<std::byte> up(kChunk * bytes_of(s)), down(up);
  const int shift = s == Scalar::tf32 ? 13 : 0;
  const std::uint64_t sign = testing::code_count(s == Scalar::tf32 ? Scalar::f32 : s) / 2;
  for (std::uint32_t first = 0; first <= kInf; first += kChunk) {
    const std::uint32_t count = std::min(kChunk, kInf - first + 1);
    for (std::uint32_t i = 0; i < count; ++i) {
      plus[i] = std::bit_cast<float>(first + i);
      minus[i] = -plus[i];
    }
    store_row(plus.data(), count, up.data(), s, 0, target());
    store_row(minus.data(), count, down.data(), s, 0, target());
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint64_t expected = std::uint64_t{walk.next(plus[i])} << shift;
      ASSERT_EQ(read_code(up.data() + i * bytes_of(s), s), expected) << std::hexfloat << plus[i];
      ASSERT_EQ(read_code(down.data() + i * bytes_of(s), s), expected | sign) << std::hexfloat << minus[i];
    }
  }
}

TEST_P(SlowRows, NarrowEveryNanF32AsTheScalarCode) {
  constexpr std::uint32_t kFirst = 0x7f800001, kChunk = 1 << 16;
  for (const std::uint32_t sign : {0u, 0x80000000u}) {
    for (std::uint32_t first = kFirst; first < 0x80000000u; first += kChunk) {
      std::vector<float> row(std::min(kChunk, 0x80000000u - first));
      for (std::uint32_t i = 0; i < row.size(); ++i) row[i] = std::bit_cast<float>(sign | (first + i));
      expect_stored_as_scalar(row, scalar(), target());
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mantissa::convert_test
