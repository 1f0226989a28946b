// Sequences that join and leave: each gets what generate() gives to its prompt alone.
#include "mantissa/generate/rollout/live_sequences.h"

#include <gtest/gtest.h>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "generate/eval/tiny_model.h"
#include "mantissa/core/base/error.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {
namespace {

using mantissa::testing::best_device;

constexpr std::int64_t kEntries = 29, kPositions = 640;
const char* const kServed[] = {"64-true",        "32-true",
                               "bf16-mixed",     "16-true",
                               "fp8-hybrid",     "bf16-mixed compute=nvfp4",
                               "bf16-matmul-x6", "bf16-mixed; *: rounding=stochastic"};

weights::ModelSource live_llama(const nlohmann::json& fields = {}) {
  nlohmann::json all = {{"intermediate_size", 300}, {"max_position_embeddings", kPositions}};
  all.update(fields.is_null() ? nlohmann::json::object() : fields);
  return eval::tiny_model_of(mantissa::testing::tiny_llama(false, kEntries, all));
}

std::vector<std::int32_t> begin_of(std::int64_t length, std::int32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>((seed + i * (i + 3)) % kEntries));
  return ids;
}

/// What a request got.
struct LiveGot {
  std::vector<std::int32_t> ids;
  std::vector<double> log_probs, of_prompt;
  std::vector<std::vector<Likely>> likely;
  int ends = 0;
  std::exception_ptr error;
};

LiveRequest live_request(LiveGot& got, std::vector<std::int32_t> prompt, std::int64_t sequence,
                         std::uint64_t seed) {
  LiveRequest r;
  r.prompt = std::move(prompt);
  r.sequence = sequence;
  r.max_new_tokens = 12;
  r.stop = {4, 19};
  r.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.98, .seed = seed};
  r.on_token = [&got](const LiveToken& token) {
    if (token.of_prompt) {
      got.of_prompt.push_back(token.log_prob);
    } else {
      got.ids.push_back(token.id);
      got.log_probs.push_back(token.log_prob);
    }
    got.likely.push_back(token.most_likely);
    return true;
  };
  r.on_end = [&got](const std::exception_ptr& error) {
    ++got.ends;
    got.error = error;
  };
  return r;
}

void finish(LiveSequences& live) {
  while (!live.idle()) live.step();
}

/// Prompts of one token and of several steps, some of them twice, and beginnings of others.
TEST(LiveSequences, GetWhatGenerateGivesToTheirPromptAloneUnderEveryPolicy) {
  const weights::ModelSource source = live_llama();
  for (const char* line : kServed) {
    SCOPED_TRACE(line);
    const precision::Policy policy = precision::Policy::parse(line);
    LiveSequences live(source, policy, kPositions, 3, best_device());
    const std::vector<Request> requests = {
        {begin_of(1, 5), 0},   {begin_of(7, 2), 0},   {begin_of(300, 3), 0},
        {begin_of(7, 2), 1},   {begin_of(7, 2), 0},   {begin_of(520, 11), 4},
        {begin_of(23, 17), 0}, {begin_of(40, 17), 0}, {begin_of(16, 1), 0}};
    std::vector<LiveGot> got(requests.size());
    for (std::size_t r = 0; r < requests.size(); ++r) {
      LiveRequest request = live_request(got[r], requests[r].prompt, requests[r].sequence, 5 + r % 2);
      live.check(request);
      live.add(std::move(request));
      if (r % 2 == 1) live.step();  // the next ones join later
    }
    finish(live);
    for (std::size_t r = 0; r < requests.size(); ++r) {
      GenerateOptions options;
      options.max_new_tokens = 12;
      options.stop = {4, 19};
      options.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.98, .seed = 5 + r % 2};
      const Generation alone =
          complete(source, policy, std::span(requests).subspan(r, 1), options, 1, best_device()).front();
      EXPECT_EQ(got[r].ids, alone.ids) << r;
      EXPECT_EQ(got[r].log_probs, alone.log_probs) << r;
      EXPECT_EQ(got[r].ends, 1) << r;
    }
  }
}

/// States of recurrences cannot rewind, and experts see the tokens of all sequences.
TEST(LiveSequences, GetWhatGenerateGivesInEveryKindOfModel) {
  for (const char* family : {"rwkv7", "qwen3-moe", "gemma2"}) {
    for (const char* line : {"32-true", "bf16-mixed"}) {
      SCOPED_TRACE(std::string(family) + " " + line);
      const weights::ModelSource source =
          weights::find_model(std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/families" / family);
      const precision::Policy policy = precision::Policy::parse(line);
      LiveSequences live(source, policy, live_capacity(source.config, 48), 3, best_device());
      const std::vector<Request> requests = {{begin_of(7, 2), 0}, {begin_of(7, 2), 1},  {begin_of(20, 3), 0},
                                             {begin_of(1, 5), 0}, {begin_of(20, 3), 0}, {begin_of(7, 2), 2}};
      std::vector<LiveGot> got(requests.size());
      for (std::size_t r = 0; r < requests.size(); ++r) {
        LiveRequest request = live_request(got[r], requests[r].prompt, requests[r].sequence, 5);
        request.prompt_log_probs = r == 4;
        live.check(request);
        live.add(std::move(request));
        if (r % 2 == 1) live.step();
      }
      finish(live);
      for (std::size_t r = 0; r < requests.size(); ++r) {
        GenerateOptions options;
        options.max_new_tokens = 12;
        options.stop = {4, 19};
        options.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.98, .seed = 5};
        const Generation alone =
            complete(source, policy, std::span(requests).subspan(r, 1), options, 1, best_device()).front();
        EXPECT_EQ(got[r].ids, alone.ids) << r;
        EXPECT_EQ(got[r].log_probs, alone.log_probs) << r;
      }
      EXPECT_EQ(got[4].of_prompt.size(), 19U);
    }
  }
}

/// The log-probabilities of a prompt are those with which its tokens were generated.
TEST(LiveSequences, ScoreAPromptWithTheBitsOfItsGeneration) {
  const weights::ModelSource source = live_llama();
  for (const char* line : {"32-true", "bf16-mixed", "fp8-hybrid"}) {
    SCOPED_TRACE(line);
    LiveSequences live(source, precision::Policy::parse(line), kPositions, 3, best_device());
    LiveGot made, scored, beside;
    LiveRequest first = live_request(made, begin_of(1, 5), 0, 1);
    first.max_new_tokens = 60;
    first.stop = {};
    live.add(std::move(first));
    finish(live);
    std::vector<std::int32_t> whole = begin_of(1, 5);
    whole.insert(whole.end(), made.ids.begin(), made.ids.end());
    LiveRequest again = live_request(scored, whole, 0, 1);
    again.prompt_log_probs = true;
    again.most_likely = 3;
    again.max_new_tokens = 1;
    live.add(live_request(beside, begin_of(30, 2), 0, 1));
    live.add(std::move(again));
    finish(live);
    EXPECT_EQ(scored.of_prompt, made.log_probs);
    ASSERT_EQ(scored.likely.size(), 61U);
    for (const std::vector<Likely>& likely : scored.likely) {
      ASSERT_EQ(likely.size(), 3U);
      EXPECT_GE(likely[0].log_prob, likely[1].log_prob);
      EXPECT_GE(likely[1].log_prob, likely[2].log_prob);
    }
    EXPECT_EQ(scored.ids.size(), 1U);
    EXPECT_EQ(beside.ends, 1);
  }
}

TEST(LiveSequences, ScoreAPromptWithoutNewTokens) {
  LiveSequences live(live_llama(), precision::Policy::parse("32-true"), kPositions, 2, best_device());
  LiveGot one, several, nothing;
  for (auto& [got, length] : {std::pair<LiveGot*, int>{&one, 1}, {&several, 9}}) {
    LiveRequest r = live_request(*got, begin_of(length, 3), 0, 1);
    r.prompt_log_probs = true;
    r.max_new_tokens = 0;
    live.add(std::move(r));
  }
  LiveRequest r = live_request(nothing, begin_of(4, 3), 0, 1);
  r.max_new_tokens = 0;
  live.add(std::move(r));
  finish(live);
  EXPECT_TRUE(one.of_prompt.empty());
  EXPECT_EQ(several.of_prompt.size(), 8U);
  EXPECT_TRUE(several.ids.empty());
  EXPECT_EQ(one.ends + several.ends + nothing.ends, 3);
}

/// A conversation continues from the states of its earlier turn, and a cancelled leader leaves others whole.
TEST(LiveSequences, KeepTheirBitsWhenOthersAreCancelled) {
  const weights::ModelSource source = live_llama();
  const precision::Policy policy = precision::Policy::parse("bf16-mixed");
  LiveSequences live(source, policy, kPositions, 3, best_device());
  std::stop_source cancel;
  LiveGot cancelled, follows, later;
  LiveRequest first = live_request(cancelled, begin_of(600, 3), 0, 1);
  first.cancel = cancel.get_token();
  live.add(std::move(first));
  live.add(live_request(follows, begin_of(600, 3), 1, 1));
  live.step();  // feeds a part of the prompt
  cancel.request_stop();
  finish(live);
  EXPECT_TRUE(cancelled.ids.empty());
  EXPECT_EQ(cancelled.ends, 1);
  std::vector<std::int32_t> longer = begin_of(600, 3);
  longer.insert(longer.end(), follows.ids.begin(), follows.ids.end());
  longer.push_back(1);
  live.add(live_request(later, longer, 1, 1));
  finish(live);
  for (const auto& [got, prompt] : {std::pair{&follows, begin_of(600, 3)}, {&later, longer}}) {
    const Request request{prompt, 1};
    GenerateOptions options;
    options.max_new_tokens = 12;
    options.stop = {4, 19};
    options.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.98, .seed = 1};
    const Generation alone = complete(source, policy, {&request, 1}, options, 1, best_device()).front();
    EXPECT_EQ(got->ids, alone.ids);
    EXPECT_EQ(got->log_probs, alone.log_probs);
  }
}

TEST(LiveSequences, EndOneSequenceForAnErrorOfItsOwn) {
  LiveSequences live(live_llama(), precision::Policy::parse("32-true"), kPositions, 2, best_device());
  LiveGot got;
  LiveRequest request = live_request(got, begin_of(4, 3), 0, 1);
  request.on_token = [](const LiveToken&) -> bool { throw std::runtime_error("of one sequence"); };
  LiveGot other;
  live.add(std::move(request));
  live.add(live_request(other, begin_of(9, 3), 0, 1));
  finish(live);
  EXPECT_TRUE(got.error);
  EXPECT_EQ(got.ends, 1);
  EXPECT_FALSE(other.error);
  EXPECT_FALSE(other.ids.empty());
}

TEST(LiveSequences, RefusePromptsThatDoNotFit) {
  LiveSequences live(live_llama(), precision::Policy::parse("32-true"), 32, 2, best_device());
  LiveGot got;
  EXPECT_THROW(live.check(live_request(got, {}, 0, 1)), ConfigError);
  EXPECT_THROW(live.check(live_request(got, {kEntries}, 0, 1)), ConfigError);
  EXPECT_THROW(live.check(live_request(got, begin_of(21, 1), 0, 1)), ConfigError);
  EXPECT_NO_THROW(live.check(live_request(got, begin_of(20, 1), 0, 1)));
}

/// Values of a model with dynamic RoPE depend on the longest sequence beyond its original context.
TEST(LiveSequences, HaveOnlyPositionsOnWhichTheValuesDoNotDepend) {
  const nlohmann::json dynamic = {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}},
                                  {"max_position_embeddings", 8}};
  EXPECT_EQ(live_capacity(live_llama(dynamic).config, 100), 8);
  EXPECT_EQ(live_capacity(live_llama().config, 100), 100);
  EXPECT_EQ(live_capacity(live_llama().config, 10000), kPositions);
}

}  // namespace
}  // namespace mantissa::rollout
