// Reproducibility for a model of every family: settings that must not change a byte of training or decoding.
#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "engine/model/tiny_families.h"
#include "engine/runtime/program.h"
#include "kernels/row_testing.h"

namespace mantissa::runtime::families_test {
namespace {

using mantissa::testing::Bytes;
using mantissa::testing::Compiled;
using mantissa::testing::Data;
using mantissa::testing::kTinyVocabulary;
using mantissa::testing::Segments;
using mantissa::testing::tiny_families;
using mantissa::testing::TinyFamily;

const char* const kPolicies[] = {
#ifndef MANTISSA_SANITIZED
    "64-true", "32-true", "16-mixed", "fp8-hybrid",
#endif
    "bf16-mixed"};

class FamilyUnder : public ::testing::TestWithParam<std::tuple<TinyFamily, const char*>> {
 protected:
  model::ModelConfig config() const {
    const TinyFamily& tiny = std::get<0>(GetParam());
    return model::parse_model_config(tiny.config, tiny.name);
  }
  precision::Policy policy() const { return precision::Policy::parse(std::get<1>(GetParam())); }
};

INSTANTIATE_TEST_SUITE_P(Families, FamilyUnder,
                         ::testing::Combine(::testing::ValuesIn(tiny_families()),
                                            ::testing::ValuesIn(kPolicies)),
                         [](const auto& i) {
                           std::string name = std::get<0>(i.param).name + "_" + std::get<1>(i.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// Longer than the windows, the original contexts and a vector, and not a multiple of a vector.
constexpr std::int64_t kLength = 19, kRows = 4;

/// Returns log-probabilities and gradients of kRows rows, with `at_once` rows per run.
std::vector<Bytes> step(const model::ModelConfig& config, const precision::Policy& policy,
                        std::int64_t at_once, const kernels::Context& ctx = {.simd = kernels::best_simd()},
                        const std::function<void(plan::CompileOptions&)>& change = {}) {
  const Segments micro(std::vector<std::int64_t>(static_cast<std::size_t>(at_once), kLength));
  plan::CompileOptions options = mantissa::testing::options_for(micro);
  if (change) change(options);
  Compiled c(model::build_log_prob(config, micro.tokens, kLength, true), policy, options, ctx);
  c.randomize_vectors();
  const Data data(kRows * kLength, kTinyVocabulary, 5);
  std::vector<Bytes> out;
  Bytes log_probs;
  for (std::int64_t first = 0; first < kRows; first += at_once) {
    data.feed(c, static_cast<std::size_t>(first * kLength), static_cast<std::size_t>(micro.tokens));
    c.executor->run(graph::Phase::forward, micro.extent());
    c.executor->run(graph::Phase::backward, micro.extent(), first > 0);
    const Bytes more = c.bytes(c.program.required("log_prob"), static_cast<std::size_t>(micro.tokens));
    log_probs.insert(log_probs.end(), more.begin(), more.end());
  }
  c.executor->run(graph::Phase::finish, micro.extent());
  out = c.gradients();
  out.push_back(std::move(log_probs));
  return out;
}

TEST_P(FamilyUnder, MicroBatchesThreadsAndInstructionSetsGiveTheSameBits) {
  const std::vector<Bytes> whole = step(config(), policy(), kRows);
  EXPECT_TRUE(step(config(), policy(), 2) == whole) << "2 + 2";
  EXPECT_TRUE(step(config(), policy(), 1) == whole) << "1 + 1 + 1 + 1";
  for (const kernels::Context& ctx : kernels::testing::contexts())
    EXPECT_TRUE(step(config(), policy(), kRows, ctx) == whole) << kernels::testing::describe(ctx);
}

TEST_P(FamilyUnder, RecomputingFoldingAndFusingChangeNoBit) {
  const kernels::Context ctx{.simd = kernels::best_simd()};
  const std::vector<Bytes> want = step(config(), policy(), 2);
  const auto with = [&](const auto& change) { return step(config(), policy(), 2, ctx, change); };
  // Each of these is another plan.
  const auto steps = [&](const auto& change) {
    plan::CompileOptions options;
    options.longest_row = options.longest_leaf = kLength;
    change(options);
    return plan::compile(model::build_log_prob(config(), 2 * kLength, kLength, true), policy(), options, ctx)
        .steps.size();
  };
  const std::size_t plain = steps([](plan::CompileOptions&) {});
  EXPECT_GT(steps([](plan::CompileOptions& o) { o.recompute = plan::Recompute::attention; }), plain);
  EXPECT_GT(steps([](plan::CompileOptions& o) { o.recompute = plan::Recompute::block; }), plain);
  EXPECT_GT(steps([](plan::CompileOptions& o) { o.fold = o.fuse = false; }), plain);
  EXPECT_TRUE(with([](plan::CompileOptions& o) { o.recompute = plan::Recompute::attention; }) == want);
  EXPECT_TRUE(with([](plan::CompileOptions& o) { o.recompute = plan::Recompute::block; }) == want);
  EXPECT_TRUE(with([](plan::CompileOptions& o) { o.fold = false; }) == want);
  EXPECT_TRUE(with([](plan::CompileOptions& o) { o.fuse = false; }) == want);
  EXPECT_TRUE(with([](plan::CompileOptions& o) {
                o.fold = o.fuse = false;
                o.recompute = plan::Recompute::block;
              }) == want);
  EXPECT_TRUE(with([](plan::CompileOptions& o) { o.keep_values = true; }) == want);
}

/// The first `count` rows of the logits.
std::vector<Bytes> logits(const Compiled& c, std::size_t count) {
  constexpr auto kWidth = static_cast<std::size_t>(kTinyVocabulary);
  const Bytes all = c.bytes(c.program.required("logits"), count * kWidth);
  const auto each = static_cast<std::ptrdiff_t>(all.size() / count);
  std::vector<Bytes> rows;
  for (auto at = all.begin(); at != all.end(); at += each) rows.emplace_back(at, at + each);
  return rows;
}

/// Returns the logits of each token of two sequences, computed in a single run each.
std::vector<Bytes> traced(const model::ModelConfig& config, const precision::Policy& policy,
                          const Data& data) {
  const Segments rows({kLength, kLength});
  Compiled c(model::build_logits(config, rows.tokens, kLength, false), policy,
             mantissa::testing::options_for(rows));
  c.randomize_vectors();
  data.feed(c, 0, data.ids.size());
  c.executor->run(graph::Phase::forward, rows.extent());
  return logits(c, data.ids.size());
}

/// Two sequences of kLength tokens of `data`, decoded in separate slots.
class TwoSequences {
 public:
  TwoSequences(const Compiled& c, const Data& data) : c_(c), data_(data) {}

  bool ended() const { return done_[0] == kLength && done_[1] == kLength; }
  /// Feeds the next tokens of each sequence, up to its end. Returns the indices in `data` of the last ones,
  /// whose logits are consecutive in the output.
  std::vector<std::size_t> feed(const std::array<std::int64_t, 2>& most) {
    std::vector<Row> rows;
    std::vector<Segment> segments;
    std::int64_t tokens = 0;
    std::vector<std::size_t> last;
    for (std::size_t slot = 0; slot < 2; ++slot) {
      const std::int64_t n = std::min(most[slot], kLength - done_[slot]);
      if (n == 0) continue;
      const std::size_t from = slot * kLength + static_cast<std::size_t>(done_[slot]);
      std::copy_n(data_.ids.begin() + static_cast<std::ptrdiff_t>(from), n,
                  c_.integers("ids").begin() + tokens);
      c_.integers("rows")[last.size()] = static_cast<std::int32_t>(tokens + n - 1);
      segments.push_back({tokens, n, done_[slot], static_cast<std::int64_t>(slot)});
      rows.push_back({tokens, n});
      last.push_back(from + static_cast<std::size_t>(n) - 1);
      tokens += n;
      done_[slot] += n;
    }
    c_.executor->run(graph::Phase::forward, {tokens, rows, segments, 1});
    return last;
  }

 private:
  const Compiled& c_;
  const Data& data_;
  std::array<std::int64_t, 2> done_ = {0, 0};
};

TEST_P(FamilyUnder, DecodingInChunksOfAnySizeGivesTheLogitsOfATrace) {
  const Data data(2 * kLength, kTinyVocabulary, 5);
  const std::vector<Bytes> want = traced(config(), policy(), data);
  plan::CompileOptions options;
  options.longest_row = kLength;
  options.longest_leaf = 2 * kLength;
  Compiled c(model::build_decode(config(), 2 * kLength, 2, kLength), policy(), options);
  c.randomize_vectors();
  using Chunks = std::vector<std::array<std::int64_t, 2>>;  // sizes of runs, used cyclically
  for (const Chunks& chunks : {Chunks{{1, 1}}, {{kLength, kLength}}, {{5, 2}, {1, 7}}, {{1, 3}, {11, 1}}}) {
    TwoSequences sequences(c, data);
    for (std::size_t run = 0; !sequences.ended(); ++run) {
      const std::vector<std::size_t> last = sequences.feed(chunks[run % chunks.size()]);
      const std::vector<Bytes> got = logits(c, last.size());
      for (std::size_t i = 0; i < last.size(); ++i)
        EXPECT_TRUE(got[i] == want[last[i]]) << "token " << last[i] << ", run " << run;
    }
  }
}

}  // namespace
}  // namespace mantissa::runtime::families_test
