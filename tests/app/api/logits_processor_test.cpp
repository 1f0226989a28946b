// A function of the user that changes logits before a token is chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "app/api/tiny.h"
#include "mantissa/core/base/error.h"

namespace mantissa::testing {
namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

class LogitsProcessor : public ::testing::Test {
 protected:
  void SetUp() override {
    api::train(api::Config::parse(tiny_config(4, "32-true")), into(folder / "r"));
    prompts = {{"Kim said"}, {"a"}};
    options.max_new_tokens = 12;
    options.samples = 2;
    options.temperature = 1.1;
    options.hardware.threads = 2;
  }
  api::Generations run() const { return api::generate({folder / "r"}, prompts, options); }
  /// Lets only `ids` through.
  void allow(const std::set<std::int32_t>& ids) {
    options.logits_processor = [ids](const api::NextToken&, std::span<double> logits) {
      for (std::size_t i = 0; i < logits.size(); ++i)
        if (!ids.contains(static_cast<std::int32_t>(i))) logits[i] = kExcluded;
    };
  }
  TemporaryFolder folder;
  std::vector<api::Prompt> prompts;
  api::GenerateOptions options;
};

TEST_F(LogitsProcessor, ThatChangesNothingChangesNoBit) {
  for (const auto& [temperature, top_k, top_p, min_p, penalty] :
       {std::tuple(0.0, 0, 1.0, 0.0, 1.0), {1.1, 0, 1.0, 0.0, 1.0}, {0.9, 7, 0.8, 0.05, 1.3}}) {
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    options.min_p = min_p;
    options.repetition_penalty = penalty;
    options.logits_processor = {};
    const api::Generations want = run();
    options.logits_processor = [](const api::NextToken&, std::span<double>) {};
    const api::Generations got = run();
    for (std::size_t i = 0; i < want.all.size(); ++i) {
      EXPECT_EQ(got.all[i].ids, want.all[i].ids);
      EXPECT_EQ(got.all[i].log_probs, want.all[i].log_probs);
    }
  }
}

TEST_F(LogitsProcessor, GetsTheSequenceOfEachToken) {
  std::vector<std::vector<std::int32_t>> seen(4);
  options.logits_processor = [&](const api::NextToken& next, std::span<double> logits) {
    EXPECT_EQ(logits.size(), 256U);
    auto& ids = seen[next.prompt * 2 + static_cast<std::size_t>(next.sample)];
    ids.assign(next.ids.begin(), next.ids.end());
    EXPECT_EQ(next.prompt_ids.size(), prompts[next.prompt].text.size());
  };
  const api::Generations made = run();
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<std::int32_t> before = made.all[i].ids;
    before.pop_back();
    EXPECT_EQ(seen[i], before);
  }
}

TEST_F(LogitsProcessor, ExcludesTokens) {
  for (const auto& [temperature, top_k, top_p] :
       {std::tuple(0.0, 0, 1.0), {1.0, 0, 1.0}, {5.0, 2, 1.0}, {5.0, 100, 0.99}}) {
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    const std::set<std::int32_t> allowed = {65, 66, 200};
    allow(allowed);
    std::set<std::int32_t> drawn;
    for (const api::Generation& g : run().all) drawn.insert(g.ids.begin(), g.ids.end());
    EXPECT_TRUE(std::ranges::includes(allowed, drawn)) << temperature << ' ' << top_k;
    EXPECT_TRUE(temperature == 0 || drawn.size() > 1);
  }
  options.temperature = 0;
  allow({7});
  const api::Generation g = run().all[0];
  EXPECT_EQ(g.ids, std::vector<std::int32_t>(12, 7));
  EXPECT_LT(g.log_probs[0], 0) << "of the model's own distribution";
}

TEST_F(LogitsProcessor, ThatLeavesNoTokenOrNoNumberIsAnError) {
  allow({});
  EXPECT_THROW(run(), ConfigError);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    options.logits_processor = [bad](const api::NextToken&, std::span<double> logits) { logits[3] = bad; };
    EXPECT_THROW(run(), ConfigError);
  }
  options.logits_processor = [](const api::NextToken&, std::span<double>) {
    throw std::runtime_error("mine");
  };
  EXPECT_THROW(run(), std::runtime_error);
}

}  // namespace
}  // namespace mantissa::testing
