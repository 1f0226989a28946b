// Steps that run chunk by chunk give the bytes of steps that run for all tokens at once, in less memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/model/tiny_families.h"
#include "engine/runtime/program.h"

namespace mantissa::runtime::chunk_tokens_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::kTinyVocabulary;
using mantissa::testing::Segments;
using mantissa::testing::tiny_llama;

constexpr std::int64_t kChunk = 256;

/// Rows shorter than a chunk, several in one chunk, and longer ones that end within a block of a sum.
const std::vector<std::int64_t> kLengths = {300, 20, 700, 5, 256, 60};

struct Case {
  std::string policy;
  plan::Recompute recompute = plan::Recompute::none;
  std::int64_t rows_per_leaf = 1;
  bool fold = true;
};

plan::CompileOptions options_of(const Case& c, const Segments& rows, std::int64_t chunk) {
  plan::CompileOptions o;
  o.longest_row = rows.tokens;
  o.longest_leaf = rows.tokens;
  o.recompute = c.recompute;
  o.fold = o.fuse = c.fold;
  o.chunk_tokens = chunk;
  return o;
}

/// Log-probabilities and gradients, and whether steps ran in chunks.
struct Results {
  std::vector<Bytes> bytes;
  bool in_chunks = false;
};

/// Returns the results of two micro-batches of the same rows.
Results step(const model::ModelConfig& model, const Case& c, const std::vector<std::int64_t>& lengths,
             std::int64_t chunk, std::int64_t vocabulary = 29) {
  const Segments rows(lengths, c.rows_per_leaf);
  Compiled compiled(model::build_log_prob(model, rows.tokens, *std::ranges::max_element(lengths), true),
                    precision::Policy::parse(c.policy), options_of(c, rows, chunk),
                    {.simd = kernels::best_simd(), .threads = 2});
  compiled.randomize_vectors();
  const Data data(2 * rows.tokens, vocabulary, 5);
  Results out;
  out.in_chunks = !compiled.program.chunked.empty();
  for (std::int64_t m = 0; m < 2; ++m) {
    data.feed(compiled, static_cast<std::size_t>(m * rows.tokens), static_cast<std::size_t>(rows.tokens));
    compiled.executor->run(graph::Phase::forward, rows.extent());
    compiled.executor->run(graph::Phase::backward, rows.extent(), m > 0);
    out.bytes.push_back(
        compiled.bytes(compiled.program.required("log_prob"), static_cast<std::size_t>(rows.tokens)));
  }
  compiled.executor->run(graph::Phase::finish, rows.extent());
  for (Bytes& gradient : compiled.gradients()) out.bytes.push_back(std::move(gradient));
  return out;
}

/// Compares a plan with chunks with one without. Returns true if its steps run in chunks.
bool same_in_chunks(const model::ModelConfig& model, const Case& c, const std::vector<std::int64_t>& lengths,
                    std::int64_t chunk = kChunk, std::int64_t vocabulary = 29) {
  const Results whole = step(model, c, lengths, 0, vocabulary),
                parts = step(model, c, lengths, chunk, vocabulary);
  EXPECT_FALSE(whole.in_chunks);
  EXPECT_TRUE(parts.bytes == whole.bytes) << c.policy << ", chunks of " << chunk;
  return parts.in_chunks;
}

TEST(ChunkTokens, ChangeNoByteUnderAnyPolicy) {
  const model::ModelConfig model = tiny_llama(true, 29, {{"intermediate_size", 96}});
  for (const char* policy :
       {"32-true", "bf16-mixed", "bf16-true", "16-true", "64-true", "tf32", "bf16-mixed residual=bf16 kv=f16",
        "bf16-mixed accumulate_order=chain", "bf16-mixed accumulate=b200", "16-mixed accumulate=h100:f16",
        "fp8-hybrid", "bf16-mixed compute=mxfp8", "bf16-matmul", "bf16-matmul-x3", "bf16-matmul-x6",
        "bf16-mixed accumulate=f16", "bf16-true rounding=stochastic"})
    EXPECT_TRUE(same_in_chunks(model, {policy, plan::Recompute::block}, kLengths)) << policy;
  EXPECT_FALSE(same_in_chunks(
      model, {"bf16-mixed compute=mxfp8 activation_block=row", plan::Recompute::block}, kLengths))
      << "a scale of all tokens of a row is known after the last one";
}

TEST(ChunkTokens, ChangeNoByteWithLeavesOfSeveralRows) {
  const model::ModelConfig model = tiny_llama(false, 29, {{"intermediate_size", 96}});
  for (const char* policy : {"32-true", "bf16-mixed", "bf16-true"}) {
    for (const std::int64_t rows_per_leaf : {2, 3, 6}) {
      for (const std::int64_t chunk : {kChunk, 2 * kChunk}) {
        EXPECT_TRUE(same_in_chunks(model, {policy, plan::Recompute::block, rows_per_leaf}, kLengths, chunk))
            << "leaves of " << rows_per_leaf;
      }
    }
  }
  // Without an effect of leaves, this would prove nothing.
  EXPECT_FALSE(step(model, {"32-true", plan::Recompute::block, 2}, kLengths, 0).bytes ==
               step(model, {"32-true", plan::Recompute::block}, kLengths, 0).bytes);
}

TEST(ChunkTokens, ChangeNoByteOfAnyFamily) {
  const std::vector<std::int64_t> lengths(120, 19);
  int in_chunks = 0;
  for (const auto& tiny : mantissa::testing::tiny_families()) {
    SCOPED_TRACE(tiny.name);
    const model::ModelConfig model = model::parse_model_config(tiny.config, tiny.name);
    for (const bool fold : {true, false}) {
      in_chunks += same_in_chunks(model, {"bf16-mixed", plan::Recompute::block, 1, fold}, lengths, kChunk,
                                  kTinyVocabulary)
                       ? 1
                       : 0;
    }
  }
  EXPECT_GT(in_chunks, static_cast<int>(mantissa::testing::tiny_families().size()));
}

/// Returns the activations of a step of one row of `tokens` tokens, of a model with a feed-forward of
/// `features`.
std::size_t activations(const Case& c, std::int64_t tokens, std::int64_t chunk, std::int64_t features = 64) {
  const Segments rows({tokens});
  const model::ModelConfig model = tiny_llama(true, 29, {{"intermediate_size", features}});
  return plan::compile(model::build_log_prob(model, tokens, tokens, true), precision::Policy::parse(c.policy),
                       options_of(c, rows, chunk), {})
      .memory.activations;
}

TEST(ChunkTokens, HoldTheFeedForwardOfOneChunk) {
  for (const char* policy : {"32-true", "bf16-mixed", "bf16-true"}) {
    const Case c{policy, plan::Recompute::block};
    const auto per_token = [&](std::int64_t chunk, std::int64_t features) {
      return (activations(c, 8192, chunk, features) - activations(c, 4096, chunk, features)) / 4096;
    };
    // In chunks, not even one of its results is held for all tokens.
    const std::size_t one = 512 * (std::string_view(policy) == "32-true" ? 4 : 2);
    EXPECT_LT(per_token(kChunk, 512), one) << policy;
    EXPECT_GT(per_token(0, 512), 3 * one) << policy;
  }
}

TEST(ChunkTokens, AreNotUsedForFewTokens) {
  const Case c{"bf16-mixed", plan::Recompute::block};
  EXPECT_EQ(activations(c, kChunk, kChunk), activations(c, kChunk, 0));
}

}  // namespace
}  // namespace mantissa::runtime::chunk_tokens_test
