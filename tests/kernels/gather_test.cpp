// Gather and its gradient: exact copies or one rounding, the stated order of sums over tokens on every
// instruction set and thread count, and unchanged rows for absent ids.
#include "mantissa/kernels/gather.h"

#include <gtest/gtest.h>

#include <set>

#include "kernels/reference/gather.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::gather_test {
namespace {

using testing::Batch;
using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::Tensor;
using testing::token_sum;

std::vector<std::int32_t> random_ids(std::int64_t count, std::int32_t entries, std::mt19937& random) {
  std::uniform_int_distribution<std::int32_t> uniform(0, entries - 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::int32_t& id : ids) id = uniform(random);
  return ids;
}

/// A context with the scratch memory of gather_backward.
struct Workplace {
  Workplace(const Context& base, std::int64_t tokens, std::int64_t width)
      : storage(gather_workspace(base, tokens, width)), ctx(base) {
    ctx.workspace = storage.data();
    ctx.workspace_bytes = storage.size();
  }
  Storage storage;
  Context ctx;
};

TEST(Gather, ConvertsBetweenAllFormatsWithOneRounding) {
  std::mt19937 random(kSeed);
  const std::vector<std::int32_t> ids = random_ids(40, 19, random);
  for (const Scalar from : kScalars) {
    for (const Scalar to : kScalars) {
      const Tensor table = Tensor(from, 19, 523, 4).fill_normal(random);
      Tensor expected(to, 40, 523, 3);
      std::vector<double> picked(40 * 523);
      reference::gather(40, 523, table.values().data(), ids.data(), picked.data());
      for (std::int64_t i = 0; i < 40 * 523; ++i)
        expected.set(i / 523, i % 523, picked[static_cast<std::size_t>(i)]);
      for (const Context& ctx : contexts()) {
        Tensor y(to, 40, 523, 3);
        gather(ctx, 40, 523, table, ids.data(), y);
        EXPECT_EQ(y, expected) << name(from) << " to " << name(to) << ", " << describe(ctx);
      }
    }
  }
}

struct Case {
  Scalar dy;
  std::int32_t entries;
  std::int64_t width;
  std::int64_t leaf;
  bool accumulate;
  Scalar arithmetic() const { return is_f64(dy) ? Scalar::f64 : Scalar::f32; }
};

class GatherBackwardCases : public ::testing::TestWithParam<Case> {};

template <class T>
Tensor spelled(const Batch& batch, const Case& f, const std::vector<std::int32_t>& ids, const Tensor& dy,
               const Tensor& before) {
  Tensor table = before;
  const std::set<std::int32_t> occurring(ids.begin(), ids.end());
  for (std::int32_t v = 0; v < f.entries; ++v) {
    for (std::int64_t c = 0; c < f.width; ++c) {
      const T start = f.accumulate ? static_cast<T>(before.get(v, c)) : T{0};
      const T sum = !occurring.contains(v) ? start : token_sum<T>(batch, start, [&](std::int64_t t, T chain) {
        return ids[static_cast<std::size_t>(t)] == v ? chain + static_cast<T>(dy.get(t, c)) : chain;
      });
      table.set(v, c, static_cast<double>(sum));
    }
  }
  return table;
}

TEST_P(GatherBackwardCases, HasTheBitsOfTheStatedOrderEverywhere) {
  const Case& f = GetParam();
  std::mt19937 random(kSeed);
  const Batch batch({300, 1, 256, 40, 513}, f.leaf);
  const std::vector<std::int32_t> ids = random_ids(batch.tokens, f.entries, random);
  const Tensor dy = Tensor(f.dy, batch.tokens, f.width, 3).fill_normal(random);
  const Tensor before = Tensor(f.arithmetic(), f.entries, f.width, 2).fill_normal(random);
  const Tensor expected =
      is_f64(f.dy) ? spelled<double>(batch, f, ids, dy, before) : spelled<float>(batch, f, ids, dy, before);
  for (const Context& ctx : contexts()) {
    SCOPED_TRACE(describe(ctx));
    const Workplace place(ctx, batch.tokens, f.width);
    Tensor table = before;
    gather_backward(place.ctx, batch.extent(), {f.entries, f.width, ids.data(), dy, table, f.accumulate});
    EXPECT_EQ(table, expected);
  }
}

/// n additions in any order are within (n − 1)u·Σ|dy| of the sum, plus one for each block, leaf and the
/// table.
TEST_P(GatherBackwardCases, IsTheSumWithinTheErrorOfItsArithmetic) {
  const Case& f = GetParam();
  std::mt19937 random(kSeed);
  const Batch batch({300, 1, 256, 40, 513}, f.leaf);
  const std::vector<std::int32_t> ids = random_ids(batch.tokens, f.entries, random);
  const Tensor dy = Tensor(f.dy, batch.tokens, f.width).fill_normal(random);
  Tensor table(f.arithmetic(), f.entries, f.width);
  const Workplace place({.simd = best_simd(), .threads = 2}, batch.tokens, f.width);
  gather_backward(place.ctx, batch.extent(), {f.entries, f.width, ids.data(), dy, table});
  std::vector<double> values = dy.values(), sum(static_cast<std::size_t>(f.entries * f.width)),
                      sizes(sum.size());
  reference::gather_backward(batch.tokens, f.entries, f.width, ids.data(), values.data(), sum.data());
  for (double& x : values) x = std::abs(x);
  reference::gather_backward(batch.tokens, f.entries, f.width, ids.data(), values.data(), sizes.data());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::int64_t v = static_cast<std::int64_t>(i) / f.width, c = static_cast<std::int64_t>(i) % f.width;
    const double n = static_cast<double>(std::ranges::count(ids, static_cast<std::int32_t>(v)) + 20);
    EXPECT_NEAR(table.get(v, c), sum[i],
                1.01 * n * (unit_roundoff(f.arithmetic()) + unit_roundoff(Scalar::f64)) * sizes[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GatherBackwardCases,
    ::testing::Values(Case{Scalar::f64, 9, 20, 1, false}, Case{Scalar::f32, 1, 70, 2, true},
                      Case{Scalar::f32, 7, 33, 1, true}, Case{Scalar::f32, 5, 600, 2, false},
                      Case{Scalar::f32, 900, 8, 1, true}, Case{Scalar::f32, 900, 8, 5, false},
                      Case{Scalar::bf16, 31, 16, 1, true}, Case{Scalar::f16, 31, 16, 2, false},
                      Case{Scalar::tf32, 31, 5, 1, false}, Case{Scalar::e5m2, 31, 5, 1, true},
                      Case{Scalar::e4m3, 31, 5, 3, true}),
    [](const auto& info) {
      const Case& f = info.param;
      return std::string(name(f.dy)) + "_" + std::to_string(f.entries) + "x" + std::to_string(f.width) +
             "_leaf" + std::to_string(f.leaf) + (f.accumulate ? "_accumulate" : "");
    });

TEST_P(GatherBackwardCases, ApartHasTheBitsOfASeparateTableThatIsAdded) {
  const Case& f = GetParam();
  std::mt19937 random(kSeed);
  const Batch batch({300, 1, 256, 40, 513}, f.leaf);
  const std::vector<std::int32_t> ids = random_ids(batch.tokens, f.entries, random);
  const Tensor dy = Tensor(f.dy, batch.tokens, f.width, 3).fill_normal(random);
  for (const Scalar stored :
       {f.arithmetic(), Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    Tensor before = Tensor(stored, f.entries, f.width, 2).fill_normal(random);
    for (std::int64_t c = 0; c < f.width; c += 3) before.set(f.entries / 2, c, -0.0);
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(std::string(name(stored)) + ", " + describe(ctx));
      const Workplace place(ctx, batch.tokens, f.width);
      Tensor own(f.arithmetic(), f.entries, f.width);
      gather_backward(place.ctx, batch.extent(), {f.entries, f.width, ids.data(), dy, own});
      Tensor expected = before;
      for (std::int64_t v = 0; v < f.entries; ++v) {
        for (std::int64_t c = 0; c < f.width; ++c) {
          const double rounded = round_to(own.get(v, c), stored);
          const double sum = f.arithmetic() == Scalar::f64
                                 ? before.get(v, c) + rounded
                                 : static_cast<float>(before.get(v, c)) + static_cast<float>(rounded);
          expected.set(v, c, sum);
        }
      }
      Tensor table = before;
      GatherBackward g{f.entries, f.width, ids.data(), dy, table};
      g.apart = true;
      gather_backward(place.ctx, batch.extent(), g);
      EXPECT_EQ(table, expected);
    }
  }
}

/// Equals the rounding of a whole table in f32, or of its sum with the table.
TEST_P(GatherBackwardCases, RoundsANarrowerTableOnce) {
  const Case& f = GetParam();
  if (is_f64(f.dy)) return;  // f64 tables are not narrower
  std::mt19937 random(kSeed);
  const Batch batch({300, 1, 256, 40, 513}, f.leaf);
  const std::vector<std::int32_t> ids = random_ids(batch.tokens, f.entries, random);
  const Tensor dy = Tensor(f.dy, batch.tokens, f.width, 3).fill_normal(random);
  Tensor micro(Scalar::f32, f.entries, f.width);
  const Workplace place({.simd = best_simd()}, batch.tokens, f.width);
  gather_backward(place.ctx, batch.extent(), {f.entries, f.width, ids.data(), dy, micro});
  for (const Scalar narrow : {Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    Tensor before = Tensor(narrow, f.entries, f.width, 2).fill_normal(random);
    for (std::int64_t v = 0; v < f.entries; v += 3) before.set(v, 0, -0.0);
    Tensor expected = before;
    for (std::int64_t v = 0; v < f.entries; ++v) {
      for (std::int64_t c = 0; c < f.width; ++c) {
        const float sum = static_cast<float>(micro.get(v, c)) +
                          (f.accumulate ? static_cast<float>(before.get(v, c)) : 0.0F);
        expected.set(v, c, static_cast<double>(sum));
      }
    }
    for (const Context& ctx : contexts()) {
      const Workplace there(ctx, batch.tokens, f.width);
      Tensor table = before;
      gather_backward(there.ctx, batch.extent(), {f.entries, f.width, ids.data(), dy, table, f.accumulate});
      EXPECT_EQ(table, expected) << name(narrow) << ", " << describe(ctx);
    }
  }
}

TEST(GatherBackward, KeepsRowsOfAbsentIdsWhenAccumulating) {
  const Batch batch({3});
  const std::int32_t ids[] = {4, 1, 4};
  const Tensor dy(Scalar::f32, 3, 1, std::vector<double>{1, 2, 3}.data());
  Tensor table(Scalar::f32, 6, 1, std::vector<double>{-0.0, 1, -0.0, -0.0, 1, -0.0}.data());
  const Workplace place({.simd = best_simd()}, 3, 1);
  gather_backward(place.ctx, batch.extent(), {6, 1, ids, dy, table, true});
  EXPECT_EQ(table, Tensor(Scalar::f32, 6, 1, std::vector<double>{-0.0, 3, -0.0, -0.0, 5, -0.0}.data()));
}

}  // namespace
}  // namespace mantissa::kernels::gather_test
