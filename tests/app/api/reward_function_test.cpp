// Rewards of rl from a function of the program that uses the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "app/api/tiny.h"
#include "mantissa/app/api/train.h"

namespace mantissa::api {
namespace {

using testing::has;
using testing::TemporaryFolder;

class RewardFunctions : public ::testing::Test {
 protected:
  static std::string config() {
    return "[run]\nsteps = 4\n[model]\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 1\n"
           "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\npeople_max = 2\n"
           "template = \"none\"\nvalidation = 0.0\n[optimizer]\nlr = 1e-2\n[schedule]\nwarmup_steps = 1\n"
           "[checkpoint]\ninterval = 2\nkeep = 9\n[rl]\nreward = \"regex:[a-c]\"\nprompts_per_step = 2\n"
           "samples_per_prompt = 4\nmax_new_tokens = 12\n";
  }
  /// Trains into the folder `out`, from the newest state of an earlier call, up to step `last`.
  Summary run(const std::string& out, RewardFunction reward, std::int64_t last = 4) {
    TrainOptions options;
    options.out = folder / out;
    options.reward = std::move(reward);
    options.resume = 0;
    std::stop_source stop;
    Events events;
    events.on_step = [&](const Step& step) {
      metrics = step.metrics;
      if (step.step == last && last < step.steps) stop.request_stop();
    };
    return train(Config::parse(config()), options, events, stop.get_token());
  }

  TemporaryFolder folder;
  Metrics metrics;  // of the last step
};

template <class E, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const E& e) {
    return e.what();
  }
  return "no error";
}

/// The rule of config(): 1 for a letter from a to c.
std::vector<Reward> letters(const std::vector<ResponseToScore>& responses) {
  std::vector<Reward> rewards;
  for (const ResponseToScore& r : responses) {
    const double found = r.response.find_first_of("abc") != std::string_view::npos ? 1 : 0;
    rewards.push_back({found, {{"letters", found}}, found > 0});
  }
  return rewards;
}

TEST_F(RewardFunctions, HaveTheBitsOfTheSameRule) {
  const std::string rule = run("rule", {}).weights_xxh64;
  std::size_t scored = 0;
  const Summary whole = run("function", [&](const std::vector<ResponseToScore>& responses) {
    scored += responses.size();
    for (const ResponseToScore& r : responses) {
      EXPECT_NE(r.row.find("\"prompt\""), std::string_view::npos) << r.row;
      EXPECT_FALSE(r.prompt.empty());
    }
    return letters(responses);
  });
  EXPECT_EQ(whole.weights_xxh64, rule);
  EXPECT_EQ(scored, 4U * 8U);
  const auto part = std::ranges::find(metrics, "reward_letters", &Metrics::value_type::first);
  EXPECT_NE(part, metrics.end()) << "a part has a metric";
  EXPECT_TRUE(run("parts", letters, 2).interrupted);
  const Summary rest = run("parts", letters);
  EXPECT_EQ(rest.steps_here, 2);
  EXPECT_EQ(rest.weights_xxh64, rule) << "resumed";
}

TEST_F(RewardFunctions, MustReturnOneFiniteNumberForEachResponse) {
  const auto message = [&](RewardFunction function) {
    return message_of<RunStopped>([&] { run("wrong", std::move(function)); });
  };
  EXPECT_TRUE(
      has(message([](const auto&) { return std::vector<Reward>(3); }), "gave 3 rewards for 8 responses"));
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), 1e39}) {
    const auto all = [&](Reward reward) {
      return message(
          [reward](const auto& responses) { return std::vector<Reward>(responses.size(), reward); });
    };
    EXPECT_TRUE(has(all({bad}), "gave total = "));
    EXPECT_TRUE(has(all({1, {{"part", bad}}}), "gave part = "));
  }
  struct Own {};
  EXPECT_THROW(run("own", [](const auto&) -> std::vector<Reward> { throw Own(); }), Own);
}

TEST_F(RewardFunctions, ArePartOfRlAlone) {
  TrainOptions options;
  options.out = folder / "text";
  options.reward = letters;
  const Config text = Config::parse(testing::tiny_config(1, "32-true"));
  EXPECT_TRUE(has(message_of<ConfigError>([&] { train(text, options); }), "has no rewards"));
}

}  // namespace
}  // namespace mantissa::api
