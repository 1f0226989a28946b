// The recurrence and token shift of rows whose tokens ranks share: the bits of whole rows, whatever the
// format and rounding of the state.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/comm/run_ranks.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/row_blocks.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/train/steps/key_ring.h"

namespace mantissa::train::ring_states_test {
namespace {

constexpr std::int64_t kHeads = 2, kKeyDim = 8, kValueDim = 12, kKeys = kHeads * kKeyDim,
                       kValues = kHeads * kValueDim, kChannels = 20;
const std::vector<SharedRow> kRows = {{37, {20, 17}}, {24, {}}, {40, {3, 1, 30, 6}}, {24, {12, 12}}};
constexpr std::int64_t kTokens = 125;

/// A tensor [tokens, width] in f32.
struct Tensor {
  std::int64_t width;
  std::vector<float> values;
  graph::Argument argument() {
    graph::Argument a;
    a.data = values.data();
    a.type = Scalar::f32;
    a.rows = static_cast<std::int64_t>(values.size()) / width;
    a.width = width;
    return a;
  }
};

Tensor random_tensor(std::int64_t width, unsigned seed, float scale, float shift) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor t{width, std::vector<float>(static_cast<std::size_t>(kTokens * width))};
  for (float& x : t.values) x = normal(random) * scale + shift;
  return t;
}

/// One op with inputs and outputs that have a row for each token, and coefficients that have not.
struct Op {
  const char* id;
  graph::Attributes attributes;
  std::vector<Tensor> inputs;
  std::vector<std::int64_t> outputs;  // widths
  Scalar interior = Scalar::f64;
  Rounding rounding = Rounding::nearest;
};

std::vector<Tensor> run(Op op, const Extent& extent, graph::KeyRing* ring) {
  std::vector<Tensor> results;
  std::vector<graph::Argument> inputs, outputs;
  for (Tensor& t : op.inputs) inputs.push_back(t.argument());
  for (const std::int64_t width : op.outputs)
    results.push_back({width, std::vector<float>(static_cast<std::size_t>(extent.tokens * width))});
  for (Tensor& t : results) outputs.push_back(t.argument());
  kernels::Context ctx{kernels::best_simd(), 2};
  const Storage workspace(std::size_t{1} << 22);
  ctx.workspace = workspace.data();
  ctx.workspace_bytes = workspace.size();
  graph::Call call{ctx, extent, inputs, outputs, op.attributes};
  call.interior = op.interior;
  call.rounding = op.rounding;
  call.random_name = 77;
  call.ring = ring;
  graph::find_op(op.id).run(call);
  return results;
}

/// The segments of whole rows, or of one rank's blocks, and the tokens of the latter in those of the former.
struct Layout {
  std::vector<Segment> segments;
  std::vector<std::int64_t> tokens;
};

Layout layout_of(int part, int parts) {
  Layout l;
  std::int64_t begin = 0, row_number = 0;
  for (const SharedRow& row : kRows) {
    const std::vector<std::int64_t> documents =
        row.documents.empty() ? std::vector{row.length} : row.documents;
    std::vector<TokenRange> blocks = {{0, row.length}};
    if (parts > 1)
      blocks = {block_of(row.length, part, 2 * parts), block_of(row.length, 2 * parts - 1 - part, 2 * parts)};
    for (const TokenRange& block : blocks) {
      std::int64_t first = 0;
      for (const std::int64_t n : documents) {
        const std::int64_t from = std::max(first, block.begin), to = std::min(first + n, block.end);
        if (from < to) {
          const auto at = static_cast<std::int64_t>(l.tokens.size());
          const auto sequence = static_cast<std::uint64_t>(1000 * row_number + first);
          l.segments.push_back({at, to - from, from - first, row_number, sequence});
          for (std::int64_t t = from; t < to; ++t) l.tokens.push_back(begin + t);
        }
        first += n;
      }
    }
    begin += row.length;
    ++row_number;
  }
  return l;
}

std::vector<Op> ops() {
  const auto in = [](unsigned seed, std::int64_t width) { return random_tensor(width, seed, 0.3F, 0); };
  const std::vector<Tensor> recurrence = {in(1, kKeys), random_tensor(kKeys, 2, 0.1F, -0.3F),
                                          in(3, kKeys), in(4, kValues),
                                          in(5, kKeys), in(6, kKeys)};
  std::vector<Tensor> gradient = recurrence;
  gradient.push_back(in(7, kValues));
  const graph::Attributes shape = {{"heads", kHeads}, {"key_dim", kKeyDim}, {"value_dim", kValueDim}};
  const std::vector<std::int64_t> of_inputs = {kKeys, kKeys, kKeys, kValues, kKeys, kKeys};
  const auto mix = [](unsigned seed) {
    Tensor t = random_tensor(kChannels, seed, 0.5F, 0);
    t.values.resize(kChannels);
    return t;
  };
  std::vector<Op> all;
  for (const auto& [interior, rounding] : {std::pair(Scalar::f64, Rounding::nearest),
                                           {Scalar::bf16, Rounding::nearest},
                                           {Scalar::bf16, Rounding::stochastic}}) {
    all.push_back({"recurrence", shape, recurrence, {kValues}, interior, rounding});
    all.push_back({"recurrence.grad", shape, gradient, of_inputs, interior, rounding});
  }
  all.push_back({"token_shift", {}, {in(8, kChannels), mix(9), mix(10)}, {kChannels, kChannels}});
  all.push_back({"token_shift.dx", {}, {mix(9), mix(10), in(11, kChannels), in(12, kChannels)}, {kChannels}});
  return all;
}

class RingStates : public ::testing::TestWithParam<int> {};

TEST_P(RingStates, HaveTheBitsOfWholeRows) {
  const int parts = GetParam();
  const Layout whole = layout_of(0, 1);
  ASSERT_EQ(std::ssize(whole.tokens), kTokens);
  for (const Op& op : ops()) {
    SCOPED_TRACE(std::string(op.id) + (op.rounding == Rounding::stochastic ? " stochastic" : ""));
    const std::vector<Tensor> expected = run(op, {kTokens, {}, whole.segments, 1, 5}, nullptr);
    std::vector<Tensor> found = expected;
    for (Tensor& t : found) std::ranges::fill(t.values, -1.0F);
    mantissa::testing::run_ranks(parts, [&](comm::Communicator& ranks) {
      KeyRing ring(ranks, parts);
      ring.set_rows(kRows);
      const Layout own = layout_of(ring.part(), parts);
      const auto tokens = std::ssize(own.tokens);
      Op mine = op;
      for (std::size_t i = 0; i < op.inputs.size(); ++i) {
        const Tensor& from = op.inputs[i];
        if (std::ssize(from.values) != kTokens * from.width) continue;  // coefficients
        mine.inputs[i].values.resize(static_cast<std::size_t>(tokens * from.width));
        for (std::int64_t t = 0; t < tokens; ++t)
          std::copy_n(from.values.begin() + own.tokens[static_cast<std::size_t>(t)] * from.width, from.width,
                      mine.inputs[i].values.begin() + t * from.width);
      }
      const std::vector<Tensor> results = run(mine, {tokens, {}, own.segments, 1, 5}, &ring);
      for (std::size_t i = 0; i < results.size(); ++i) {
        const std::int64_t width = results[i].width;
        for (std::int64_t t = 0; t < tokens; ++t)
          std::copy_n(results[i].values.begin() + t * width, width,
                      found[i].values.begin() + own.tokens[static_cast<std::size_t>(t)] * width);
      }
    });
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(std::memcmp(expected[i].values.data(), found[i].values.data(), 4 * expected[i].values.size()),
                0)
          << "output " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, RingStates, ::testing::Values(2, 3, 4, 7, 12));

}  // namespace
}  // namespace mantissa::train::ring_states_test
