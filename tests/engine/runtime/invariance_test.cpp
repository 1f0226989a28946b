// Settings that must not change a byte: the split into micro-batches, the threads, the instruction set, and
// decoding token by token.
#include <gtest/gtest.h>

#include "engine/runtime/program.h"
#include "kernels/row_testing.h"
#include "kernels/tile_simds.h"
#include "mantissa/core/base/error.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/programs/decoding.h"

namespace mantissa::runtime::invariance_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::Segments;
using mantissa::testing::tiny_llama;

constexpr std::int64_t kVocabulary = 29;
const char* const kPolicies[] = {"64-true",
                                 "32-true",
                                 "bf16-mixed",
                                 "32-true compute=f16 residual=f16 kv=f16",
                                 "bf16-mixed accumulate_order=chain",
                                 "bf16-mixed accumulate=h100",
                                 "16-mixed accumulate=mi300",
                                 "tf32 accumulate=ada:k=64",
                                 "tf32 accumulate_order=tile"};

plan::CompileOptions options_for(std::int64_t length, std::int64_t rows_per_leaf) {
  plan::CompileOptions o;
  o.longest_row = length;
  o.longest_leaf = length * rows_per_leaf;
  return o;
}

/// Returns gradients of `rows` rows of `length` tokens, with `at_once` rows per run.
std::vector<Bytes> gradients(const char* policy, bool tied, std::int64_t length, std::int64_t rows,
                             std::int64_t at_once, std::int64_t rows_per_leaf, const kernels::Context& ctx) {
  const std::int64_t capacity = at_once * length;
  const Compiled c(model::build_log_prob(tiny_llama(tied), capacity, length, true),
                   precision::Policy::parse(policy), options_for(length, rows_per_leaf), ctx);
  const Data data(rows * length, kVocabulary, 5);
  const Segments micro(std::vector<std::int64_t>(static_cast<std::size_t>(at_once), length), rows_per_leaf);
  for (std::int64_t first = 0; first < rows; first += at_once) {
    data.feed(c, static_cast<std::size_t>(first * length), static_cast<std::size_t>(capacity));
    c.executor->run(graph::Phase::forward, micro.extent());
    c.executor->run(graph::Phase::backward, micro.extent(), first > 0);
  }
  c.executor->run(graph::Phase::finish, micro.extent());
  return c.gradients();
}

TEST(MicroBatches, SplitAtLeavesGiveTheSameGradients) {
  const kernels::Context ctx{.simd = kernels::best_simd()};
  for (const char* policy : kPolicies) {
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(::testing::Message() << policy << (tied ? ", tied" : ", untied"));
      const std::vector<Bytes> whole = gradients(policy, tied, 9, 4, 4, 1, ctx);
      EXPECT_TRUE(gradients(policy, tied, 9, 4, 2, 1, ctx) == whole) << "2 + 2";
      EXPECT_TRUE(gradients(policy, tied, 9, 4, 1, 1, ctx) == whole) << "1 + 1 + 1 + 1";
      EXPECT_TRUE(gradients(policy, tied, 9, 4, 2, 2, ctx) == gradients(policy, tied, 9, 4, 4, 2, ctx))
          << "leaves of 2";
    }
  }
}

TEST(MicroBatches, UnderRecipesOfBlocksToo) {
  const kernels::Context ctx{.simd = kernels::best_simd()};
  for (const char* policy :
       {"bf16-mixed compute=mxfp8 scale_rounding=rceil activation_block=1x128 weight_block=128x128",
        "bf16-mixed compute=mxfp8 scale_rounding=rceil activation_block=row weight_block=row",
        "bf16-mixed compute=mxfp6-e2m3 gradient_rounding=stochastic hadamard=16",
        "bf16-mixed compute=nvfp4 scaling=delayed weight_block=16x16 hadamard=16",
        "bf16-mixed residual=bf16 norm_cast=before-gain"}) {
    SCOPED_TRACE(policy);
    const std::vector<Bytes> whole = gradients(policy, false, 150, 4, 4, 1, ctx);
    EXPECT_TRUE(gradients(policy, false, 150, 4, 1, 1, ctx) == whole);
  }
}

TEST(MicroBatches, OfRowsLongerThanABlockToo) {
  const kernels::Context ctx{.simd = kernels::best_simd()};
  for (const char* policy : {"32-true", "bf16-mixed"}) {
    SCOPED_TRACE(policy);
    const std::vector<Bytes> whole = gradients(policy, true, 300, 4, 4, 1, ctx);
    EXPECT_TRUE(gradients(policy, true, 300, 4, 2, 1, ctx) == whole) << "2 + 2";
    EXPECT_TRUE(gradients(policy, true, 300, 4, 1, 1, ctx) == whole) << "1 + 1 + 1 + 1";
    const std::vector<Bytes> pairs = gradients(policy, true, 300, 4, 4, 2, ctx);
    EXPECT_TRUE(gradients(policy, true, 300, 4, 2, 2, ctx) == pairs) << "leaves of 2";
    // Each leaf is a separate sum. Without an effect of leaves, the test would prove nothing.
    EXPECT_FALSE(pairs == whole);
  }
}

TEST(Steps, AreTheSameOnEveryInstructionSetAndThreadCount) {
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    const std::vector<Bytes> want = gradients(policy, false, 40, 2, 2, 1, {.simd = kernels::best_simd()});
    for (const kernels::Context& ctx : kernels::testing::contexts()) {
      EXPECT_TRUE(gradients(policy, false, 40, 2, 2, 1, ctx) == want) << kernels::testing::describe(ctx);
    }
  }
}

/// Gains are 1 at first, so rounding before them changes no result, but the gradients of both.
TEST(Steps, RoundBeforeGainsOfOneInTheBackwardPassAlone) {
  const kernels::Context best{.simd = kernels::best_simd()};
  const auto under = [](const char* policy, const kernels::Context& ctx) {
    return gradients(policy, false, 150, 2, 2, 1, ctx);
  };
  const char* const kBackward = "bf16-mixed residual=bf16; *: pass=backward norm_cast=before-gain";
  const std::vector<Bytes> want = under("bf16-mixed residual=bf16 norm_cast=before-gain", best);
  EXPECT_FALSE(want == under("bf16-mixed residual=bf16", best));
  EXPECT_TRUE(want != under("bf16-mixed residual=bf16; *: pass=forward norm_cast=before-gain", best));
  for (const kernels::Context& ctx : kernels::testing::contexts())
    EXPECT_TRUE(under(kBackward, ctx) == want) << kernels::testing::describe(ctx);
}

/// Each field of a recipe changes the gradients, by the same bytes everywhere.
TEST(Steps, UnderRecipesAreTheSameOnEveryInstructionSetAndThreadCount) {
  std::vector<std::vector<Bytes>> seen;
  for (const char* policy :
       {"bf16-mixed compute=mxfp8", "bf16-mixed compute=mxfp8 scale_rounding=rceil",
        "bf16-mixed compute=mxfp8 activation_block=1x128", "bf16-mixed compute=mxfp8 weight_block=128x128",
        "bf16-mixed compute=mxfp8 scale_rounding=none",
        "bf16-mixed compute=mxfp8 scale_rounding=none activation_block=1x128 weight_block=128x128",
        "bf16-mixed compute=mxfp8 activation_block=row",
        "bf16-mixed compute=mxfp8 gradient_rounding=stochastic", "bf16-mixed compute=mxfp8 hadamard=16",
        "bf16-mixed compute=mxfp6-e2m3", "bf16-mixed compute=mxfp6-e3m2",
        "bf16-mixed compute=nvfp4 weight_block=16x16 gradient_rounding=stochastic hadamard=16",
        "fp8-hybrid gradient_rounding=stochastic", "bf16-mixed residual=bf16",
        "bf16-mixed residual=bf16 norm_cast=before-gain"}) {
    SCOPED_TRACE(policy);
    const std::vector<Bytes> want = gradients(policy, false, 150, 2, 2, 1, {.simd = kernels::best_simd()});
    for (const kernels::Context& ctx : kernels::testing::contexts())
      EXPECT_TRUE(gradients(policy, false, 150, 2, 2, 1, ctx) == want) << kernels::testing::describe(ctx);
    EXPECT_TRUE(std::ranges::find(seen, want) == seen.end()) << "the recipe has no effect";
    seen.push_back(want);
  }
}

/// Every policy whose factors are exact in bf16, and parts of f32, with tile registers, emulated ones too.
TEST(Steps, AreTheSameOnTileRegisters) {
  const bool emulated = kernels::testing::tile_hardware() == kernels::testing::TileHardware::emulator;
  for (const char* policy :
       {"bf16-mixed", "bf16-true", "fp8-hybrid", "bf16-mixed compute=mxfp8",
        "bf16-mixed compute=nvfp4 scaling=delayed", "bf16-matmul", "bf16-matmul-x3", "bf16-matmul-x6"}) {
    SCOPED_TRACE(policy);
    const std::vector<Bytes> want = gradients(policy, false, 70, 2, 2, 1, {.simd = kernels::best_simd()});
    for (const kernels::Simd simd : kernels::testing::tile_simds()) {
      const kernels::Context ctx{.simd = simd, .threads = 3};
      const std::int64_t before = kernels::testing::emulated_products();
      EXPECT_TRUE(gradients(policy, false, 70, 2, 2, 1, ctx) == want) << kernels::testing::describe(ctx);
      if (simd == kernels::Simd::amx && emulated) {
        EXPECT_GT(kernels::testing::emulated_products(), before);
      }
    }
  }
}

TEST(Steps, BeyondTheCapacityAreRefused) {
  const Compiled c(model::build_log_prob(tiny_llama(false), 4, 4, false), precision::Policy::parse("32-true"),
                   options_for(4, 1));
  EXPECT_THROW(c.executor->run(graph::Phase::forward, Segments({5}).extent()), ShapeError);
}

/// Returns log-probabilities of the sequence's own next tokens, from a trace of the whole sequence.
std::vector<double> traced(const char* policy, const std::vector<std::int32_t>& ids, std::size_t first) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const Compiled c(model::build_logits(tiny_llama(false), n, n, false), precision::Policy::parse(policy),
                   options_for(n, 1));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    c.integers("ids")[t] = ids[t];
    c.integers("targets")[t] = t + 1 < ids.size() ? ids[t + 1] : -1;
  }
  c.executor->run(graph::Phase::forward, Segments({n}).extent());
  std::vector<double> all = c.values("log_prob", ids.size() - 1);
  return {all.begin() + static_cast<std::ptrdiff_t>(first), all.end()};
}

TEST(Decoding, WithACacheGivesTheLogProbabilitiesOfATrace) {
  const std::vector<std::int32_t> prompt = {3, 17, 28, 0, 9};
  rollout::GenerateOptions options;
  options.max_new_tokens = 20;
  options.sampling.temperature = 1.5;
  for (const char* policy : {"64-true",
                             "32-true",
                             "bf16-mixed",
                             "16-mixed",
                             "bf16-true",
                             "16-true",
                             "bf16-mixed residual=bf16",
                             "bf16-mixed kv=f16",
                             "bf16-mixed params=e4m3",
                             "params=e5m2",
                             "tf32 params=tf32",
                             "bf16-matmul",
                             "bf16-matmul-x3",
                             "fp8-hybrid",
                             "transformer-engine-float16",
                             "bf16-mixed compute=mxfp4",
                             "bf16-mixed compute=nvfp4 scaling=delayed",
                             "bf16-mixed accumulate=f16 accumulate_block=32",
                             "bf16-mixed accumulate_order=chain",
                             "bf16-mixed accumulate=a100",
                             "16-mixed accumulate=mi250",
                             "fp8-hybrid accumulate=h100",
                             "fp8-hybrid accumulate_order=chain",
                             "32-true accumulate_order=tile",
                             "16-mixed saturate=true flush_subnormals=true output=compute>f32"}) {
    SCOPED_TRACE(policy);
    const kernels::Context ctx{.simd = kernels::best_simd()};
    const auto numbers = precision::Policy::parse(policy);
    const auto device = runtime::cpu(ctx);
    const auto program = programs::compile_decode(tiny_llama(false), numbers, 25, *device);
    const auto weights = std::make_shared<WeightSet>(*program, *device);
    weights->initialize(7);
    Session session(program, weights);
    const rollout::Generation g =
        rollout::generate(session, tiny_llama(false), std::array{rollout::Request{prompt}}, options).front();
    ASSERT_EQ(g.ids.size(), 20U);
    std::vector<std::int32_t> ids = prompt;
    ids.insert(ids.end(), g.ids.begin(), g.ids.end());
    EXPECT_EQ(g.log_probs, traced(policy, ids, prompt.size() - 1));
  }
}

}  // namespace
}  // namespace mantissa::runtime::invariance_test
