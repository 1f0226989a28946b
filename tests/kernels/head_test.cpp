// The fused head compared with its reference, and invariance of its bytes.
#include "mantissa/kernels/head.h"

#include "kernels/head_case.h"
#include "kernels/reference/head.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::head_test {
namespace {

using namespace kernels::testing;  // NOLINT(google-build-using-namespace)

/// A logit errs by a chain of kChannels products, the softmax by its sum over 16 lanes, dx by chains of 256.
/// All errors are relative to the largest Σ|x||w|, or |d|·Σ… for gradients.
TEST(Head, AgreesWithItsReferenceAcrossChunks) {
  for (const auto& [arithmetic, storage] :
       {std::pair{Scalar::f64, Scalar::f64}, std::pair{Scalar::f32, Scalar::f32},
        std::pair{Scalar::f32, Scalar::bf16}}) {
    for (const std::int64_t vocabulary : {std::int64_t{1}, std::int64_t{37}, kVocabularyChunk,
                                          kVocabularyChunk + 1, 2 * kVocabularyChunk + 5}) {
      SCOPED_TRACE(::testing::Message() << name(storage) << " vocabulary " << vocabulary);
      const Head h(arithmetic, storage, vocabulary, Batch({7, 4, 2}, 2));
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      const auto n = static_cast<std::size_t>(h.batch.tokens);
      const std::vector<double> x = h.x.values(), w = h.weight.values();
      const reference::Head head{h.batch.tokens, kChannels, vocabulary, x.data(), w.data(), h.ids.data()};
      std::vector<std::vector<double>> want{std::vector<double>(n), std::vector<double>(n),
                                            std::vector<double>(n), std::vector<double>(x.size()),
                                            std::vector<double>(w.size())};
      reference::log_prob(head, want[0].data(), want[1].data(), want[2].data());
      reference::log_prob_backward(head, want[1].data(), {h.d.values().data()}, want[3].data(),
                                   want[4].data());
      double mx = 0, mw = 0, md = 0;
      for (const double e : x) mx = std::max(mx, std::abs(e));
      for (const double e : w) mw = std::max(mw, std::abs(e));
      for (const double e : h.d.values()) md = std::max(md, std::abs(e));
      const double logit = static_cast<double>(kChannels) * mx * mw;
      const double chain =
          2 * kChannels * logit + static_cast<double>(std::min(vocabulary, kVocabularyChunk)) / 16 + 64;
      const double scale[] = {logit + 8, logit + 8, 2 * logit + 8, 2 * md * mw,
                              md * mx * static_cast<double>(n)};
      const double u = unit_roundoff(arithmetic) + unit_roundoff(Scalar::f64);
      for (std::size_t o = 0; o < want.size(); ++o) {
        const std::vector<double> values = got[o].values();
        for (std::size_t e = 0; e < values.size(); ++e)
          ASSERT_NEAR(values[e], want[o][e], (chain + (o >= 3 ? 264 : 0)) * u * scale[o])
              << "output " << o << " element " << e;
      }
    }
  }
}

/// With integer operands logits are exact, so the reference rounds the same numbers. With this seed none of
/// them is near a tie. The remaining errors are those of f32.
TEST(Head, RoundsSoftmaxIntermediatesToALowerFormat) {
  for (const Scalar format : {Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    for (const std::int64_t vocabulary : {std::int64_t{37}, kVocabularyChunk + 6}) {
      SCOPED_TRACE(::testing::Message() << name(format) << " vocabulary " << vocabulary);
      Head h(Scalar::f32, Scalar::f32, vocabulary, Batch({7, 4, 2}, 2));
      h.softmax = format;
      std::mt19937 random(kSeed);
      for (Tensor* t : {&h.x, &h.weight}) {
        for (std::int64_t r = 0; r < t->rows; ++r)
          for (std::int64_t c = 0; c < kChannels; ++c) t->set(r, c, static_cast<double>(random() % 3) - 1);
      }
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      const auto round = [format](double x) { return round_to(x, format); };
      const double u = unit_roundoff(Scalar::f32);
      std::vector<double> dweight(static_cast<std::size_t>(vocabulary * kChannels));
      for (std::int64_t t = 0; t < h.batch.tokens; ++t) {
        std::vector<double> logits;
        for (std::int64_t v = 0; v < vocabulary; ++v) {
          double logit = 0;
          for (std::int64_t c = 0; c < kChannels; ++c) logit += h.x.get(t, c) * h.weight.get(v, c);
          logits.push_back(round(logit));
        }
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (std::int64_t v = 0; v < vocabulary; v += kVocabularyChunk) {
          const auto begin = logits.begin() + v,
                     end = logits.begin() + std::min(vocabulary, v + kVocabularyChunk);
          const double before = most;
          most = std::max(most, *std::max_element(begin, end));
          double chunk = 0;
          for (auto l = begin; l != end; ++l) chunk += round(std::exp(*l - most));
          sum = round(sum * round(std::exp(before - most)) + chunk);
        }
        const double lse = round(most + std::log(sum));
        const std::int32_t id = h.ids[static_cast<std::size_t>(t)];
        EXPECT_EQ(got[1].get(t, 0), lse);
        EXPECT_EQ(got[0].get(t, 0), id < 0 ? 0 : round(logits[static_cast<std::size_t>(id)] - lse));
        std::vector<double> dx(kChannels);
        for (std::int64_t v = 0; v < vocabulary && id >= 0; ++v) {
          const double p = round(std::exp(logits[static_cast<std::size_t>(v)] - lse));
          const double d = h.d.get(t, 0) * ((v == id ? 1 : 0) - p);
          for (std::int64_t c = 0; c < kChannels; ++c) {
            dx[static_cast<std::size_t>(c)] += d * h.weight.get(v, c);
            dweight[static_cast<std::size_t>(v * kChannels + c)] += d * h.x.get(t, c);
          }
        }
        // A row of p sums to about 1: chains of 256 operands of magnitude 1, and five such sums.
        for (std::int64_t c = 0; c < kChannels; ++c)
          EXPECT_NEAR(got[3].get(t, c), dx[static_cast<std::size_t>(c)],
                      4 * 264 * u * std::abs(h.d.get(t, 0)));
      }
      for (std::int64_t i = 0; i < vocabulary * kChannels; ++i)
        EXPECT_NEAR(got[4].get(i / kChannels, i % kChannels), dweight[static_cast<std::size_t>(i)],
                    32 * 13 * 4 * u);
      EXPECT_TRUE(h.run({.simd = Simd::avx2, .threads = 2}) == got);
      const std::vector<Tensor> joined = h.run({.simd = best_simd()}, nullptr, true);
      for (const std::size_t o : {0, 1, 3, 4}) EXPECT_TRUE(joined[o] == got[o]);
      h.softmax = Scalar::f64;
      EXPECT_FALSE(h.run({.simd = best_simd()}) == got);
    }
  }
}

TEST(Head, GivesZerosForTokensWithoutAnId) {
  const Head h(Scalar::f32, Scalar::f32, 1030, Batch({10}));
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  for (std::int64_t t = 4; t < 10; t += 5) {
    EXPECT_EQ(got[0].get(t, 0), 0);
    for (std::int64_t c = 0; c < kChannels; ++c) EXPECT_EQ(got[3].get(t, c), 0);
  }
}

TEST(Head, GivesTheSameBytesOnEveryInstructionSetAndThreadCount) {
  const Head h(Scalar::f32, Scalar::bf16, 1061, Batch({300, 260, 3}, 1));
  const std::vector<Tensor> first = h.run({.simd = best_simd()});
  for (const Context& ctx : contexts()) EXPECT_TRUE(h.run(ctx) == first) << describe(ctx);
}

TEST(Head, NeedsTheWorkspaceOfWholeLeavesAndFitsShorterOnesInIt) {
  const Context ctx{.simd = best_simd()};
  const auto workspace = [&](std::int64_t tokens, Scalar dweight) {
    return log_prob_training_workspace(ctx, tokens, 192, 512, 32000, Scalar::f32, Scalar::f32, dweight);
  };
  // Two leaves of 192 tokens are kept at a time; a third would exceed the limit of 512 tokens.
  EXPECT_EQ(workspace(768, Scalar::f32), workspace(384, Scalar::f32));
  // A dweight that rounds once cannot be summed group by group, so it needs no memory for kept logits.
  EXPECT_LT(workspace(768, Scalar::bf16), workspace(384, Scalar::bf16) / 2);
  // Five leaves of 100 tokens would be kept at a time, but the workspace is for 384 tokens.
  const Head h(Scalar::f32, Scalar::f32, 2 * kVocabularyChunk + 5,
               Batch({100, 100, 100, 100, 100, 100, 100}, 1));
  const std::vector<Tensor> halves = h.run(ctx), joined = h.run(ctx, nullptr, true, 192);
  for (const std::size_t o : {0, 1, 3, 4}) EXPECT_TRUE(joined[o] == halves[o]) << "output " << o;
}

TEST(Head, OnePassGivesTheBytesOfTwo) {
  // 563 tokens in leaves of 300, 260 and 3 form two groups of kept logits.
  for (const auto& [arithmetic, storage] :
       {std::pair{Scalar::f64, Scalar::f64}, std::pair{Scalar::f32, Scalar::f16}}) {
    const Head h(arithmetic, storage, 1061, Batch({300, 260, 3}, 1));
    const std::vector<Tensor> halves = h.run({.simd = best_simd()});
    for (const Context& ctx : contexts()) {
      const std::vector<Tensor> joined = h.run(ctx, nullptr, true);
      for (const std::size_t o : {0U, 1U, 3U, 4U})
        EXPECT_TRUE(joined[o] == halves[o]) << describe(ctx) << " output " << o;
    }
  }
}

TEST(Head, SumsALongLeafInPartsWithTheBytesOfTheWhole) {
  // Two passes hold 2048 tokens at a time; one pass keeps the logits of whole leaves of at most 8192.
  const Context ctx{.simd = best_simd(), .threads = 2};
  for (const auto& [order, storage] :
       {std::pair{SumOrder::chain, Scalar::f32}, std::pair{SumOrder::tile, Scalar::bf16}}) {
    for (const std::int64_t rows_per_leaf : {1, 2}) {
      Head h(Scalar::f32, storage, 1061, Batch({5000, 300, 2100, 40}, rows_per_leaf));
      h.order = order;
      h.operand = Factor(storage);
      const std::int64_t longest = rows_per_leaf == 1 ? 5000 : 5300;
      for (const Tensor* before :
           {static_cast<const Tensor*>(nullptr), static_cast<const Tensor*>(&h.weight)}) {
        const std::vector<Tensor> parts = h.run(ctx, before, false, longest),
                                  whole = h.run(ctx, before, true);
        for (const std::size_t o : {0U, 1U, 3U, 4U})
          EXPECT_TRUE(parts[o] == whole[o]) << "output " << o << ", leaves of " << rows_per_leaf;
      }
    }
  }
  EXPECT_LT(
      log_prob_backward_workspace(ctx, 100000, 100000, 64, 32000, Scalar::f32, Scalar::f32, Scalar::f32),
      log_prob_backward_workspace(ctx, 2048, 2048, 64, 32000, Scalar::f32, Scalar::f32, Scalar::f32) * 2);
}

TEST(Head, OfPartsGivesTheSameBytesInOnePassAndTwoInTileOrder) {
  for (const int parts : {2, 3}) {
    Head h(Scalar::f32, Scalar::f32, 1061, Batch({300, 260, 3}, 1));
    h.operand = Factor(Scalar::bf16, parts);
    h.order = SumOrder::tile;
    const std::vector<Tensor> halves = h.run({.simd = best_simd()});
    for (const Context& ctx : contexts()) {
      EXPECT_TRUE(h.run(ctx) == halves) << describe(ctx);
      const std::vector<Tensor> joined = h.run(ctx, nullptr, true);
      for (const std::size_t o : {0U, 1U, 3U, 4U})
        EXPECT_TRUE(joined[o] == halves[o]) << describe(ctx) << " output " << o;
    }
  }
}

/// Covers one group of leaves and several, and a full chunk and a partial one.
TEST(Head, RoundsANarrowerGradientOncePerMicroBatch) {
  using mantissa::testing::cases;
  for (const auto& lengths : cases<std::vector<std::int64_t>>({{300, 260, 3}, {1500, 1400, 7}}, 1)) {
    for (const Scalar narrow :
         cases<Scalar>({Scalar::bf16, Scalar::e4m3, Scalar::tf32, Scalar::f16, Scalar::e5m2}, 2)) {
      const Head h(Scalar::f32, Scalar::bf16, 1061, Batch(lengths));
      const std::vector<Tensor> wide = h.run({.simd = best_simd()});
      std::mt19937 random(kSeed);
      const Tensor before = Tensor(narrow, 1061, kChannels).fill_normal(random);
      Tensor dx(narrow, h.batch.tokens, kChannels, wide[3].values().data()), dweight = before;
      for (std::int64_t v = 0; v < 1061; ++v) {
        for (std::int64_t c = 0; c < kChannels; ++c) {
          const float sum = static_cast<float>(before.get(v, c)) + static_cast<float>(wide[4].get(v, c));
          dweight.set(v, c, static_cast<double>(sum));
        }
      }
      for (const Context& ctx : contexts()) {
        for (const bool joined : {false, true}) {
          const std::vector<Tensor> got = h.run(ctx, &before, joined);
          EXPECT_TRUE(got[3] == dx) << name(narrow) << ", " << describe(ctx) << (joined ? ", joined" : "");
          EXPECT_TRUE(got[4] == dweight)
              << name(narrow) << ", " << describe(ctx) << (joined ? ", joined" : "");
        }
      }
    }
  }
}

TEST(Head, RecomputesLogitsIfOneLeafHasTooMany) {
  const std::int64_t vocabulary = 40 * kVocabularyChunk;
  ASSERT_TRUE(keeps_logits(800, vocabulary));
  ASSERT_FALSE(keeps_logits(830, vocabulary));
  const Head h(Scalar::f32, Scalar::f32, vocabulary, Batch({830}));
  const Context ctx{.simd = best_simd()};
  EXPECT_LT(log_prob_training_workspace(ctx, 830, 830, kChannels, vocabulary, Scalar::f32, Scalar::f32,
                                        Scalar::f32),
            16U << 20U);
  const std::vector<Tensor> halves = h.run(ctx), joined = h.run(ctx, nullptr, true);
  for (const std::size_t o : {0U, 1U, 3U, 4U}) EXPECT_TRUE(joined[o] == halves[o]) << "output " << o;
}

TEST(Head, LogSumExpOfStoredLogitsHasTheSameBits) {
  const Head h(Scalar::f32, Scalar::f32, 1061, Batch({9}));
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  const Context ctx{.simd = best_simd()};
  std::vector<std::byte> work(gemm_workspace(ctx, 9, 1061, kChannels, Scalar::f32) + 64);
  void* begin = work.data();
  std::size_t space = work.size();
  Context with = ctx;
  with.workspace = static_cast<std::byte*>(std::align(64, work.size() - 63, begin, space));
  with.workspace_bytes = work.size() - 64;
  Tensor logits(Scalar::f32, 9, 1061), lse(Scalar::f32, 9, 1);
  Gemm g;
  g.m = 9;
  g.n = 1061;
  g.k = kChannels;
  g.a = {h.x, Scalar::f32, false};
  g.b = {h.weight, Scalar::f32, true};
  g.c = logits;
  gemm(with, g);
  log_sum_exp(with, 9, 1061, logits, lse);
  EXPECT_TRUE(lse == got[1]);
}

}  // namespace
}  // namespace mantissa::kernels::head_test
