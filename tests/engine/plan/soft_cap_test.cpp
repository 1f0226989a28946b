// Soft-capped logits in a plan: output logits are capped, and joining the head's two steps keeps the cap.
#include <gtest/gtest.h>

#include "engine/runtime/program.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/graph/autodiff.h"
#include "mantissa/engine/graph/builder.h"
#include "mantissa/kernels/head.h"

namespace mantissa::plan::soft_cap_test {
namespace {

using namespace mantissa::testing;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kVocabulary = 1100, kWidth = 16;
constexpr double kCap = 2.5;
constexpr const char* kPolicies[] = {"64-true", "32-true", "bf16-mixed", "bf16-mixed output=bf16",
                                     "32-true; head: op=softmax compute=bf16"};

/// An embedding and a head. Trained, or with its logits.
graph::Graph model_of(std::int64_t tokens, bool train, double cap = kCap) {
  graph::Graph graph;
  graph::Builder b(graph, tokens);
  const graph::ValueId ids = b.token_input("ids"), targets = b.token_input("targets");
  const graph::ValueId seed = train ? b.token_numbers("dlog_prob") : graph::kNone;
  const graph::Init init{graph::Init::Kind::normal, 1};
  const graph::ValueId x =
      b.gather("embedding", ids, b.parameter("embedding.weight", {kVocabulary, kWidth}, init));
  const graph::ValueId head = b.parameter("head.weight", {kVocabulary, kWidth}, init);
  const graph::ValueId log_prob = b.log_prob("head", x, head, targets, cap);
  graph.mark_output("log_prob", log_prob);
  graph.mark_output("lse", graph.node(graph.value(log_prob).producer).outputs[1]);
  if (!train) graph.mark_output("logits", b.soft_cap("head", b.logits("head", x, head), cap));
  if (train) graph::differentiate(graph, std::array{graph::Seed{log_prob, seed}});
  return graph;
}

TEST(SoftCap, LogitsOfAPlanGiveTheHeadsLogProbabilities) {
  const Segments rows({9, 4, 1});
  const Data data(rows.tokens, kVocabulary, 11);
  for (const char* policy : kPolicies) {
    const Compiled c(model_of(rows.tokens, false), precision::Policy::parse(policy), options_for(rows));
    data.feed(c, 0, data.ids.size());
    c.executor->run(graph::Phase::forward, rows.extent());
    const Matrix logits = c.executor->buffer("logits");
    const Scalar softmax = c.program.softmax;
    std::vector<double> lse(data.ids.size()), log_prob(data.ids.size());
    Storage memory(data.ids.size() * bytes_of(logits.type));
    const Matrix sums{memory.data(), logits.type, 1};
    kernels::log_sum_exp(c.ctx, rows.tokens, kVocabulary, logits, sums, softmax);
    load_row(sums.data, sums.type, 0, lse.size(), lse.data());
    for (std::size_t t = 0; t < lse.size(); ++t) {
      if (data.targets[t] < 0) continue;
      const auto at = t * kVocabulary + static_cast<std::size_t>(data.targets[t]);
      const double l = round_to(c.values(c.program.find("logits"), 1, at).front(), softmax);
      log_prob[t] = round_to(round_to(l - lse[t], softmax), logits.type);
    }
    EXPECT_EQ(c.values("lse", lse.size()), lse) << policy;
    EXPECT_EQ(c.values("log_prob", lse.size()), log_prob) << policy;
    for (const double l : c.values("logits", kVocabulary)) EXPECT_LE(std::abs(l), kCap);
  }
}

TEST(SoftCap, IsAppliedIfTheHeadIsOneStep) {
  const Segments rows({9, 4, 1}, 2);
  const Data data(rows.tokens, kVocabulary, 11);
  const auto results = [&](const graph::Graph& graph, const char* policy, bool join) {
    CompileOptions options = options_for(rows);
    options.join_head = join;
    const Compiled c(graph, precision::Policy::parse(policy), options);
    const bool joined =
        std::ranges::any_of(c.program.steps, [](const Step& s) { return s.op->id == "log_prob.training"; });
    EXPECT_EQ(joined, join) << policy;
    return mantissa::testing::results(c, rows, data, 1);
  };
  for (const char* policy : kPolicies) {
    const graph::Graph capped = model_of(rows.tokens, true);
    const std::vector<Bytes> apart = results(capped, policy, false);
    EXPECT_TRUE(results(capped, policy, true) == apart) << policy;
    EXPECT_FALSE(results(model_of(rows.tokens, true, 0), policy, true) == apart) << policy;
  }
}

}  // namespace
}  // namespace mantissa::plan::soft_cap_test
