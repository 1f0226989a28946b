// Recomputation changes no byte of any result, and keeps exactly the documented values.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"

namespace mantissa::plan::recompute_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::options_for;
using mantissa::testing::results;
using mantissa::testing::Segments;

constexpr Recompute kModes[] = {Recompute::attention, Recompute::block};

model::ModelConfig llama(std::int64_t layers) {
  return mantissa::testing::tiny_llama(true, 29, {{"num_hidden_layers", layers}});
}

TEST(Recompute, ChangesNoByteOfAnyResult) {
  const Segments rows({9, 4, 1});
  const Data data(rows.tokens + 1, 29, 11);
  const graph::Graph graph = model::build_log_prob(llama(3), rows.tokens, rows.tokens, true);
  for (const char* policy : {"64-true", "32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true",
                             "32-true compute=tf32", "bf16-mixed kv=f16 residual=bf16"}) {
    CompileOptions options = options_for(rows);
    const Compiled plain(graph, precision::Policy::parse(policy), options);
    const std::vector<Bytes> want = results(plain, rows, data);
    for (const bool fuse : {false, true}) {
      for (const Recompute mode : kModes) {
        options.fold = options.fuse = options.join_head = fuse;
        options.recompute = mode;
        const Compiled c(graph, precision::Policy::parse(policy), options);
        EXPECT_TRUE(results(c, rows, data) == want)
            << policy << ", mode " << static_cast<int>(mode) << ", fold and fuse " << fuse;
      }
    }
  }
}

Program planned(std::int64_t layers, const char* policy, Recompute mode) {
  constexpr std::int64_t kTokens = 64;
  CompileOptions options{kTokens, kTokens};
  options.recompute = mode;
  return compile(model::build_log_prob(llama(layers), kTokens, kTokens, true),
                 precision::Policy::parse(policy), options, {});
}

TEST(Recompute, RepeatsNoStepWithoutReaders) {
  for (const char* policy : {"32-true", "bf16-mixed", "16-true"}) {
    for (const Recompute mode : kModes) {
      const Program p = planned(4, policy, mode);
      std::set<BufferId> read;
      for (const Step& s : p.steps) {
        for (const Operand& o : s.inputs) read.insert(o.buffer);
        read.insert(s.addend);
      }
      std::size_t again = 0;
      for (const Step& s : p.steps) {
        if (!s.recomputed) continue;
        ++again;
        EXPECT_EQ(s.phase, graph::Phase::backward);
        EXPECT_TRUE(
            std::any_of(s.outputs.begin(), s.outputs.end(), [&](BufferId b) { return read.contains(b); }))
            << policy << ": " << s.scope << ' ' << s.op->id;
      }
      EXPECT_GT(again, 0U);
    }
  }
}

/// Returns the additional activations of one more layer.
std::size_t per_layer(const char* policy, Recompute mode) {
  return planned(9, policy, mode).memory.activations - planned(8, policy, mode).memory.activations;
}

TEST(Recompute, KeepsTheResidualStreamBetweenBlocksOnly) {
  const std::size_t stream = 64 * 16;
  EXPECT_EQ(per_layer("64-true", Recompute::block), stream * 8);
  EXPECT_EQ(per_layer("32-true", Recompute::block), stream * 4);
  EXPECT_EQ(per_layer("bf16-mixed", Recompute::block), stream * 4);
  EXPECT_EQ(per_layer("bf16-mixed residual=bf16", Recompute::block), stream * 2);
  EXPECT_EQ(per_layer("bf16-true", Recompute::block), stream * 2);
  EXPECT_EQ(per_layer("16-true", Recompute::block), stream * 2);
}

TEST(Recompute, DiscardsResultsInsideAttention) {
  // q and the output of all heads, k and v of the key-value heads, and a log-sum-exp per head in f32.
  const std::size_t values = 64 * (16 + 8 + 8 + 16), lse = 64 * 4 * 4;
  EXPECT_EQ(per_layer("32-true", Recompute::none) - per_layer("32-true", Recompute::attention),
            values * 4 + lse);
  EXPECT_EQ(per_layer("bf16-mixed", Recompute::none) - per_layer("bf16-mixed", Recompute::attention),
            values * 2 + lse);
}

TEST(Recompute, IsNamed) {
  EXPECT_EQ(parse_recompute("block"), Recompute::block);
  EXPECT_THROW(parse_recompute("full"), ConfigError);
}

}  // namespace
}  // namespace mantissa::plan::recompute_test
