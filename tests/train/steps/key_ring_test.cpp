// Attention of rows whose tokens ranks share: that of whole rows, at the price in bytes that is written down.
#include "mantissa/train/steps/key_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <random>
#include <vector>

#include "engine/comm/run_ranks.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/row_blocks.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/ring_attention.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::train::key_ring_test {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 6;
constexpr std::int64_t kWidth = kHeads * kHeadDim, kKvWidth = kKvHeads * kHeadDim;

using Numbers = std::vector<double>;

/// The tensors of attention and its gradient: [tokens, width].
struct Tensors {
  Numbers q, k, v, dout, out, lse, dq, dk, dv;

  explicit Tensors(std::int64_t tokens) {
    const auto n = static_cast<std::size_t>(tokens);
    for (Numbers* x : {&q, &dout, &out, &dq}) x->resize(n * kWidth);
    for (Numbers* x : {&k, &v, &dk, &dv}) x->resize(n * kKvWidth);
    lse.resize(n * kHeads);
  }
};

struct Named {
  const char* name;
  Numbers Tensors::*values;
  std::int64_t width;
};
const Named kInputs[] = {{"q", &Tensors::q, kWidth},
                         {"k", &Tensors::k, kKvWidth},
                         {"v", &Tensors::v, kKvWidth},
                         {"dout", &Tensors::dout, kWidth}};
const Named kResults[] = {{"out", &Tensors::out, kWidth},
                          {"lse", &Tensors::lse, kHeads},
                          {"dq", &Tensors::dq, kWidth},
                          {"dk", &Tensors::dk, kKvWidth},
                          {"dv", &Tensors::dv, kKvWidth}};

graph::Argument argument(Numbers& x, std::int64_t width) {
  graph::Argument a;
  a.data = x.data();
  a.type = Scalar::f64;
  a.rows = static_cast<std::int64_t>(x.size()) / width;
  a.width = width;
  return a;
}

/// Runs attention and its gradient, on the keys of all ranks if `ring` is not null.
void attend(Tensors& t, const Extent& extent, std::int64_t window, graph::KeyRing* ring) {
  const graph::Attributes attributes = {
      {"heads", kHeads}, {"kv_heads", kKvHeads}, {"head_dim", kHeadDim}, {"window", window}};
  const kernels::AttentionShape shape{kHeads, kKvHeads, kHeadDim, 0, window, 0};
  kernels::Context ctx{kernels::best_simd(), 2};
  const std::size_t bytes =
      aligned(kernels::attention_backward_workspace(ctx, shape, extent.tokens, extent.tokens, Scalar::f64) +
              kernels::attention_workspace(ctx, shape, extent.tokens, extent.tokens, Scalar::f64)) +
      graph::ring_backward_workspace(shape, extent.tokens + 4, Scalar::f64, Scalar::f64, Scalar::f64);
  const Storage workspace(bytes);
  ctx.workspace = workspace.data();
  ctx.workspace_bytes = bytes;
  const auto run = [&](const char* op, std::vector<graph::Argument> inputs,
                       std::vector<graph::Argument> outputs) {
    const graph::Call call{.ctx = ctx,
                           .extent = extent,
                           .inputs = inputs,
                           .outputs = outputs,
                           .attributes = attributes,
                           .addend = {},
                           .arithmetic = Scalar::f64,
                           .compute = Scalar::f64,
                           .ring = ring};
    graph::find_op(op).run(call);
  };
  const auto of = [&](Numbers Tensors::*x, std::int64_t width) { return argument(t.*x, width); };
  run("attention", {of(&Tensors::q, kWidth), of(&Tensors::k, kKvWidth), of(&Tensors::v, kKvWidth)},
      {of(&Tensors::out, kWidth), of(&Tensors::lse, kHeads)});
  run("attention.grad",
      {of(&Tensors::q, kWidth), of(&Tensors::k, kKvWidth), of(&Tensors::v, kKvWidth),
       of(&Tensors::out, kWidth), of(&Tensors::lse, kHeads), of(&Tensors::dout, kWidth)},
      {of(&Tensors::dq, kWidth), of(&Tensors::dk, kKvWidth), of(&Tensors::dv, kKvWidth)});
}

/// Copies this rank's blocks of each row between tensors of whole rows and its own.
void copy_part(const std::vector<SharedRow>& rows, int part, int parts, const Named& what, Tensors& whole,
               Tensors& own, bool to_own) {
  std::int64_t begin = 0, token = 0;
  for (const SharedRow& row : rows) {
    for (const int block : {part, 2 * parts - 1 - part}) {
      const TokenRange range = block_of(row.length, block, 2 * parts);
      double* there = (whole.*what.values).data() + (begin + range.begin) * what.width;
      double* here = (own.*what.values).data() + token * what.width;
      std::copy_n(to_own ? there : here, range.count() * what.width, to_own ? here : there);
      token += range.count();
    }
    begin += row.length;
  }
}

std::int64_t tokens_of(const std::vector<SharedRow>& rows, int part, int parts) {
  std::int64_t tokens = 0;
  for (const SharedRow& row : rows) {
    for (const int block : {part, 2 * parts - 1 - part})
      tokens += block_of(row.length, block, 2 * parts).count();
  }
  return tokens;
}

const std::vector<SharedRow> kRows = {{37, {20, 17}}, {24, {}}, {40, {3, 1, 30, 6}}};
constexpr std::int64_t kTokens = 101;

struct Sharing {
  int parts;
  int groups;
  std::int64_t window;
};

class RingOf : public ::testing::TestWithParam<Sharing> {};

TEST_P(RingOf, RanksComputeTheAttentionOfWholeRows) {
  const auto [parts, groups, window] = GetParam();
  Tensors whole(kTokens);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (const Named& input : kInputs) {
    for (double& x : whole.*input.values) x = normal(random);
  }
  std::vector<Segment> segments;
  for (std::int64_t begin = 0; const SharedRow& row : kRows) {
    for (const std::int64_t n : row.documents.empty() ? std::vector{row.length} : row.documents) {
      segments.push_back({begin, n});
      begin += n;
    }
  }
  Tensors shared = whole;
  attend(whole, {kTokens, {}, segments}, window, nullptr);

  std::vector<std::uint64_t> sent(static_cast<std::size_t>(parts));
  mantissa::testing::run_ranks(parts * groups, [&](comm::Communicator& ranks) {
    KeyRing ring(ranks, parts);
    for (int again = 0; again < 2; ++again) {
      ring.set_rows(kRows);
      const std::int64_t tokens = tokens_of(kRows, ring.part(), parts);
      Tensors own(tokens);
      for (const Named& input : kInputs) copy_part(kRows, ring.part(), parts, input, shared, own, true);
      const std::vector<Segment> all = {{0, tokens}};
      attend(own, {tokens, {}, all}, window, &ring);
      if (ranks.rank() >= parts) continue;  // other groups compute the same
      for (const Named& result : kResults) copy_part(kRows, ring.part(), parts, result, shared, own, false);
    }
    if (ranks.rank() < parts) sent[static_cast<std::size_t>(ranks.rank())] = ranks.sent_bytes() / 2;
  });

  // Sums of at most 101 terms of some units, in two orders.
  constexpr double kTolerance = 101 * 101 * 0x1p-53;
  for (const Named& result : kResults) {
    for (std::size_t i = 0; i < (whole.*result.values).size(); ++i)
      ASSERT_NEAR((whole.*result.values)[i], (shared.*result.values)[i], kTolerance) << result.name << i;
  }
  // K and V of a block go to each rank that needs it, in both passes; dK and dV come from each later block.
  std::uint64_t bytes = 0;
  for (int block = 0; block < 2 * parts; ++block) {
    std::int64_t tokens = 0;
    for (const SharedRow& row : kRows) tokens += block_of(row.length, block, 2 * parts).count();
    const int owner = std::min(block, 2 * parts - 1 - block);
    const int readers = block < parts ? parts - 1 : owner;
    const int later = 2 * parts - 1 - block - (block < parts ? 1 : 0);  // without the owner's own
    bytes += static_cast<std::uint64_t>(tokens * 2 * kKvWidth * (2 * readers + later)) * sizeof(double);
  }
  std::uint64_t all = 0;
  for (const std::uint64_t of_rank : sent) all += of_rank;
  EXPECT_EQ(all, bytes);
}

INSTANTIATE_TEST_SUITE_P(KeyRing, RingOf,
                         ::testing::Values(Sharing{2, 1, 0}, Sharing{2, 1, 9}, Sharing{3, 1, 0},
                                           Sharing{5, 1, 0}, Sharing{2, 2, 0}, Sharing{3, 1, 9},
                                           Sharing{4, 1, 1}),
                         [](const auto& info) {
                           const Sharing& s = info.param;
                           return "Of" + std::to_string(s.parts) + "InGroups" + std::to_string(s.groups) +
                                  "Window" + std::to_string(s.window);
                         });

}  // namespace
}  // namespace mantissa::train::key_ring_test
