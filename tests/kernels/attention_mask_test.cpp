// Masked positions do not change any bit of a query's results, in either order of sums: later tokens, keys
// before its window, other segments.
#include "mantissa/kernels/attention.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention_case.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels::attention_test::attention_mask_test {
namespace {

/// Formats of tensors in f32, and the set that multiplies.
struct Masked {
  Formats formats;
  Machine machine;
};

/// Both orders of sums, and bf16 factors in tile order by the units that read them as whole groups or blocks.
std::vector<Masked> masked() {
  std::vector<Masked> all = {{all_of(Scalar::f32), {}}, {all_of(Scalar::f32, SumOrder::tile), {}}};
  Formats bf16 = all_of(Scalar::f32, SumOrder::tile);
  bf16.operand = Scalar::bf16;
  const Product product{Scalar::f32, Scalar::bf16, Scalar::bf16, {Scalar::f32, 0, SumOrder::tile}};
  for (const Simd simd : supported_sets()) {
    if (unit_of(simd, product, ProductKernel::attention).id != UnitId::fma) all.push_back({bf16, {simd, 1}});
  }
  return all;
}

std::string name_of_masked(const ::testing::TestParamInfo<Masked>& info) {
  const Formats& f = info.param.formats;
  const std::string order = f.order == SumOrder::tile ? "TileOrder" : "ChainOrder";
  if (f.operand == Scalar::f32) return order;
  std::string set(name(info.param.machine.simd));
  std::ranges::replace(set, '-', '_');
  return order + "_" + std::string(name(f.operand)) + "_" + set;
}

struct AttentionMask : ::testing::TestWithParam<Masked> {
  static Formats formats() { return GetParam().formats; }
  static Machine machine() { return GetParam().machine; }
};
struct AttentionWindowMask : AttentionMask {};

INSTANTIATE_TEST_SUITE_P(Every, AttentionMask, ::testing::ValuesIn(masked()), name_of_masked);
INSTANTIATE_TEST_SUITE_P(Every, AttentionWindowMask, ::testing::ValuesIn(masked()), name_of_masked);

// ---- Masked values are not read ----

TEST_P(AttentionMask, NotANumberInALaterTokenReachesNoEarlierOne) {
  for (const double poison :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const std::int64_t at : {1, 37, 100, 515}) {
      SCOPED_TRACE("token " + std::to_string(at));
      const Sizes sizes{2, 1, 24, {530, 20}};
      Case clean = Case::random(sizes, formats());
      clean.forward(machine());
      clean.backward(machine());
      Case bad = Case::random(sizes, formats());
      for (const auto member : {&Case::q, &Case::k, &Case::v}) {
        Tensor& t = bad.*member;
        for (std::int64_t i = 0; i < t.columns; ++i)
          t.set(static_cast<std::size_t>(at * t.columns + i), poison);
      }
      bad.forward(machine());
      for (const auto member : {&Case::out, &Case::lse}) {
        const Tensor &a = clean.*member, &b = bad.*member;
        EXPECT_EQ(std::memcmp(a.row(0), b.row(0), static_cast<std::size_t>(at) * a.row_bytes()), 0);
        EXPECT_EQ(std::memcmp(a.row(530), b.row(530), 20 * a.row_bytes()), 0);
        EXPECT_TRUE(std::isnan(b.get(static_cast<std::size_t>(at * b.columns))));
      }
      // Gradients of queries before the bad token equal those of the clean run.
      bad.backward(machine());
      EXPECT_EQ(
          std::memcmp(clean.dq.row(0), bad.dq.row(0), static_cast<std::size_t>(at) * clean.dq.row_bytes()),
          0);
      EXPECT_EQ(std::memcmp(clean.dq.row(530), bad.dq.row(530), 20 * clean.dq.row_bytes()), 0);
    }
  }
}

TEST_P(AttentionMask, NotANumberInAQueryReachesNoLaterKey) {
  const Sizes sizes{4, 2, 40, {300}};
  const std::int64_t at = 131;
  Case clean = Case::random(sizes, formats()), bad = Case::random(sizes, formats());
  for (Case* c : {&clean, &bad}) c->forward(machine());
  clean.backward(machine());
  for (const auto member : {&Case::q, &Case::dout}) {
    Tensor& t = bad.*member;
    for (std::int64_t i = 0; i < t.columns; ++i) {
      t.set(static_cast<std::size_t>(at * t.columns + i), std::numeric_limits<double>::quiet_NaN());
    }
  }
  bad.backward(machine());
  for (const auto member : {&Case::dk, &Case::dv}) {
    const Tensor &a = clean.*member, &b = bad.*member;
    EXPECT_EQ(
        std::memcmp(a.row(at + 1), b.row(at + 1), static_cast<std::size_t>(300 - at - 1) * a.row_bytes()), 0);
    EXPECT_TRUE(std::isnan(b.get(static_cast<std::size_t>(at * b.columns))));
  }
}

/// A case, and the same case with a value that is not finite in some tensors at one token.
struct Poisoned {
  Case clean, bad;

  Poisoned(const Sizes& sizes, const Formats& formats, const std::vector<Tensor Case::*>& members,
           std::int64_t at, double poison, const Machine& machine)
      : clean(Case::random(sizes, formats)), bad(Case::random(sizes, formats)) {
    for (const auto member : members) {
      Tensor& t = bad.*member;
      for (std::int64_t i = 0; i < t.columns; ++i)
        t.set(static_cast<std::size_t>(at * t.columns + i), poison);
    }
    for (Case* c : {&clean, &bad}) {
      c->forward(machine);
      c->backward(machine);
    }
  }

  /// True if tokens [begin, end) have the same bits.
  bool same(Tensor Case::*member, std::int64_t begin, std::int64_t end) const {
    const Tensor &a = clean.*member, &b = bad.*member;
    return std::memcmp(a.row(begin), b.row(begin), static_cast<std::size_t>(end - begin) * a.row_bytes()) ==
           0;
  }
  bool is_nan(Tensor Case::*member, std::int64_t token) const {
    const Tensor& t = bad.*member;
    return std::isnan(t.get(static_cast<std::size_t>(token * t.columns)));
  }
};

TEST_P(AttentionWindowMask, NotANumberReachesOnlyTheQueriesThatAttendToIt) {
  const std::int64_t length = 1100;
  using mantissa::testing::cases;
  for (const double poison :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const std::int64_t window : cases<std::int64_t>({520, 9, 1, 100}, 2)) {
      for (const std::int64_t at : cases<std::int64_t>({515, 0, 37, 520}, 1)) {
        SCOPED_TRACE("window " + std::to_string(window) + ", token " + std::to_string(at));
        const Sizes sizes{2, 1, 24, {length, 20}, window, 3};
        const Poisoned keys(sizes, formats(), {&Case::k, &Case::v}, at, poison, machine());
        for (const auto member : {&Case::out, &Case::lse, &Case::dq}) {
          EXPECT_TRUE(keys.same(member, 0, at));
          EXPECT_TRUE(keys.same(member, at + window, length + 20));
        }
        EXPECT_TRUE(keys.is_nan(&Case::out, at));
        EXPECT_TRUE(keys.is_nan(&Case::out, at + window - 1));
        // Keys that share no query with the bad one.
        for (const auto member : {&Case::dk, &Case::dv}) {
          EXPECT_TRUE(keys.same(member, 0, std::max<std::int64_t>(0, at + 1 - window)));
          EXPECT_TRUE(keys.same(member, at + window, length + 20));
        }

        const Poisoned query(sizes, formats(), {&Case::q, &Case::dout}, at, poison, machine());
        for (const auto member : {&Case::dk, &Case::dv}) {
          EXPECT_TRUE(query.same(member, 0, std::max<std::int64_t>(0, at + 1 - window)));
          EXPECT_TRUE(query.same(member, at + 1, length + 20));
          EXPECT_TRUE(query.is_nan(member, at));
          EXPECT_TRUE(query.is_nan(member, std::max<std::int64_t>(0, at + 1 - window)));
        }
      }
    }
  }
}

TEST_P(AttentionMask, AnOperandThatOverflowsInRoundingReachesOnlyTheQueriesThatAttendToIt) {
  // Finite in storage and infinite in f16, and in bf16.
  const bool of_bf16 = formats().operand == Scalar::bf16;
  const Scalar factor = of_bf16 ? Scalar::bf16 : Scalar::f16;
  const double large = of_bf16 ? 3.4e38 : 1e5;
  for (const std::int64_t window : {0, 9}) {
    const Sizes sizes{2, 1, 24, {130}, window};
    Case clean = Case::random(sizes, formats()), bad = Case::random(sizes, clean.formats);
    for (const auto member : {&Case::k, &Case::v}) (bad.*member).set(70 * 24, large);
    for (Case* c : {&clean, &bad}) {
      c->factor = factor;
      c->forward(machine());
      c->backward(machine());
    }
    for (const auto member : {&Case::out, &Case::lse, &Case::dq}) {
      const Tensor &a = clean.*member, &b = bad.*member;
      EXPECT_EQ(std::memcmp(a.row(0), b.row(0), 70 * a.row_bytes()), 0);
      const std::int64_t blind = window == 0 ? 130 : 70 + window;
      EXPECT_EQ(
          std::memcmp(a.row(blind), b.row(blind), static_cast<std::size_t>(130 - blind) * a.row_bytes()), 0);
    }
    EXPECT_FALSE(std::isfinite(bad.out.get(70 * 48)));

    // The same for a query, whose gradient reaches only the keys that it attends to.
    Case query = Case::random(sizes, clean.formats);
    query.factor = factor;
    query.forward(machine());
    for (const auto member : {&Case::q, &Case::dout}) (query.*member).set(70 * 48, large);
    query.backward(machine());
    for (const auto member : {&Case::dk, &Case::dv}) {
      const Tensor &a = clean.*member, &b = query.*member;
      const std::int64_t first = window == 0 ? 0 : 71 - window;
      EXPECT_EQ(std::memcmp(a.row(0), b.row(0), static_cast<std::size_t>(first) * a.row_bytes()), 0);
      EXPECT_EQ(std::memcmp(a.row(71), b.row(71), 59 * a.row_bytes()), 0);
      EXPECT_FALSE(std::isfinite(b.get(70 * 24)));
    }
  }
}

TEST(AttentionSoftCap, ScoresThatOverflowAreCapped) {
  // q·k is ±10^60, which exceeds f32; the capped scores are ±3.
  Case c = Case::random({1, 1, 8, {40}, 0, 3}, all_of(Scalar::f32));
  for (std::size_t i = 0; i < c.q.count(); ++i) {
    c.q.set(i, 1e30);
    c.k.set(i, i / 8 == 20 ? 1e30 : -1e30);
  }
  c.forward();
  for (std::int64_t t = 0; t < 40; ++t) {
    const double n = static_cast<double>(t), others = n * std::exp(-3.0);
    const double sum = t < 20 ? (n + 1) * std::exp(-3.0) : others + std::exp(3.0);
    EXPECT_NEAR(c.lse.get(static_cast<std::size_t>(t)), std::log(sum), 64 * unit_roundoff(Scalar::f32)) << t;
    EXPECT_TRUE(std::isfinite(c.out.get(static_cast<std::size_t>(8 * t))));
  }
  c.backward();
  for (const double x : c.dq.values()) EXPECT_EQ(x, 0);  // the cap has slope 0 there
}

TEST_P(AttentionMask, CacheRowsAfterThePositionAreNotRead) {
  const Sizes sizes{2, 1, 16, {70}};
  Case full = Case::random(sizes, formats());
  full.forward(machine());
  Tensor k(Scalar::f32, 128, 16), v(Scalar::f32, 128, 16);
  for (Tensor* t : {&k, &v}) {
    for (std::size_t i = 0; i < t->count(); ++i) t->set(i, std::numeric_limits<double>::quiet_NaN());
  }
  k.copy_rows(0, full.k, 0, 70);
  v.copy_rows(0, full.v, 0, 70);
  Tensor q(Scalar::f32, 3, 32), out(Scalar::f32, 3, 32), lse(Scalar::f32, 3, 2);
  q.copy_rows(0, full.q, 67, 3);
  run_forward(machine(), {{0, 3, 67, 0}},
              {sizes.shape(),
               q.view(),
               k.view(),
               v.view(),
               out.view(),
               lse.view(),
               formats().operand,
               formats().order,
               {1, 128}});
  EXPECT_EQ(std::memcmp(out.row(0), full.out.row(67), 3 * out.row_bytes()), 0);
}

/// Cache rows in pages of which only those of positions [begin, end) are accessible. Any other access ends
/// the program.
class GuardedRows {
 public:
  GuardedRows(const Tensor& from, std::int64_t begin, std::int64_t end) : bytes_(from.count() * 4) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    bytes_ = (bytes_ + page - 1) / page * page;
    data_ = static_cast<std::byte*>(
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memcpy(data_, from.storage.data(), from.count() * 4);
    const std::size_t first = static_cast<std::size_t>(begin) * from.row_bytes() / page * page;
    const std::size_t last = (static_cast<std::size_t>(end) * from.row_bytes() + page - 1) / page * page;
    mprotect(data_, first, PROT_NONE);
    mprotect(data_ + last, bytes_ - last, PROT_NONE);
  }
  ~GuardedRows() { munmap(data_, bytes_); }
  GuardedRows(const GuardedRows&) = delete;
  GuardedRows& operator=(const GuardedRows&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

TEST_P(AttentionWindowMask, DecodingReadsOnlyTheWindowOfTheCache) {
  const std::int64_t length = 40000, window = 700, chunk = 3, first = 39000;
  const Sizes sizes{2, 1, 16, {length}, window};
  Tensor q(Scalar::f32, chunk, 32), k(Scalar::f32, length, 16), v(Scalar::f32, length, 16),
      out(Scalar::f32, chunk, 32), guarded(Scalar::f32, chunk, 32), lse(Scalar::f32, chunk, 2);
  std::mt19937 random(kSeed);
  for (Tensor* t : {&q, &k, &v}) t->fill_normal(random);
  const std::vector<Segment> segments = {{0, chunk, first, 0}};
  Attention a{sizes.shape(), q.view(),          k.view(),        v.view(),   out.view(),
              lse.view(),    formats().operand, formats().order, {1, length}};
  run_forward(machine(), segments, a);
  const GuardedRows keys(k, first + 1 - window, first + chunk), values(v, first + 1 - window, first + chunk);
  a.k = {keys.data(), Scalar::f32, 16};
  a.v = {values.data(), Scalar::f32, 16};
  a.out = guarded.view();
  run_forward(machine(), segments, a);
  EXPECT_TRUE(same_bits(out, guarded));
}

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_mask_test
