// Sequences that are decoded together: the result of each does not depend on the others.
#include "mantissa/generate/rollout/generate.h"

#include <gtest/gtest.h>

#include "engine/runtime/program.h"
#include "kernels/row_testing.h"
#include "kernels/tile_simds.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/runtime/interleaved.h"
#include "mantissa/kernels/guard_count.h"
#include "mantissa/setup/programs/decoding.h"

namespace mantissa::rollout {
namespace {

constexpr std::int64_t kVocabulary = 29;
const char* const kPolicies[] = {
    "64-true",
    "32-true",
    "bf16-mixed",
    "16-mixed",
    "bf16-true",
    "16-true",
    "fp8-hybrid",
    "bf16-mixed compute=nvfp4 scaling=delayed",
    "bf16-matmul-x6",
    "bf16-mixed; *: op=softmax compute=bf16; *: op=angles compute=f16; *: rounding=stochastic"};

/// Some sums are longer than a block, and the vocabulary is not a multiple of a vector.
model::ModelConfig config() {
  return mantissa::testing::tiny_llama(false, kVocabulary, {{"intermediate_size", 300}});
}

/// A decoding program of that model with its weights.
struct Model {
  Model(const char* policy, std::int64_t capacity, std::int64_t streams,
        const kernels::Context& ctx = {.simd = kernels::best_simd()})
      : device(runtime::cpu(ctx)),
        program(
            programs::compile_decode(config(), precision::Policy::parse(policy), capacity, *device, streams)),
        weights(std::make_shared<runtime::WeightSet>(*program, *device)),
        session(program, weights) {
    weights->initialize(7);
  }
  std::vector<Generation> operator()(std::span<const Request> requests, const GenerateOptions& options) {
    return generate(session, config(), requests, options);
  }

  std::shared_ptr<const runtime::Device> device;
  std::shared_ptr<const plan::Program> program;
  std::shared_ptr<runtime::WeightSet> weights;
  runtime::Session session;
};

std::vector<std::int32_t> prompt_of(std::int64_t length, std::int32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<std::int32_t>((seed + i * (i + 3)) % kVocabulary));
  return ids;
}

/// Prompts of one token and of several chunks, one of them twice, and one that is a prefix of others.
std::vector<Request> requests() {
  std::vector<Request> all = {{prompt_of(1, 5), 0},   {prompt_of(7, 2), 0}, {prompt_of(300, 3), 0},
                              {prompt_of(7, 2), 1},   {prompt_of(7, 2), 0}, {prompt_of(520, 11), 4},
                              {prompt_of(23, 17), 0}, {prompt_of(5, 2), 9}, {prompt_of(16, 1), 0}};
  return all;
}

GenerateOptions drawing() {
  GenerateOptions o;
  o.max_new_tokens = 12;
  o.stop = {4, 19};  // so that they end at different positions
  o.sampling = {.temperature = 1.3, .top_k = 20, .top_p = 0.98, .seed = 5};
  return o;
}

void expect_same(const std::vector<Generation>& got, const std::vector<Generation>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].ids, want[i].ids) << "request " << i;
    EXPECT_EQ(got[i].log_probs, want[i].log_probs) << "request " << i;
  }
}

/// Each alone, in one slot.
std::vector<Generation> alone(const char* policy, std::span<const Request> requests,
                              const GenerateOptions& options, std::int64_t capacity) {
  Model model(policy, capacity, 1);
  std::vector<Generation> all;
  for (const Request& r : requests) all.push_back(std::move(model({&r, 1}, options).front()));
  return all;
}

constexpr std::int64_t kCapacity = 525;  // the longest prompt ends before its twelve tokens

TEST(Streams, GiveTheBitsOfEachAloneUnderEveryPreset) {
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    const std::vector<Request> all = requests();
    const std::vector<Generation> want = alone(policy, all, drawing(), kCapacity);
    for (const std::int64_t streams : {2, 4, 16, 20}) {
      SCOPED_TRACE(streams);
      Model model(policy, kCapacity, streams);
      expect_same(model(all, drawing()), want);
      // A slot's earlier contents do not matter.
      expect_same(model(all, drawing()), want);
    }
  }
}

/// Counts the tokens that a program runs.
struct FedTokens final : runtime::StepObserver {
  void before(const plan::Step& step, graph::Call& call) override {
    if (step.scope == "model.embed_tokens") count += call.extent.tokens;
  }
  std::int64_t count = 0;
};

/// The copies are those of all matrices whose elements are multiplied as they are stored.
TEST(Streams, GiveTheSameBitsFromInterleavedWeights) {
  const std::vector<Request> some = requests();
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    for (const std::int64_t streams : {1, 3}) {
      Model model(policy, 560, streams);
      const std::vector<Generation> expected = model(some, drawing());
      interleave_weights(*model.weights, *model.program);
      ASSERT_NE(model.weights->interleaved(), nullptr);
      runtime::Session session(model.program, model.weights);
      expect_same(generate(session, config(), some, drawing()), expected);
    }
  }
}

TEST(Streams, OfFewSequencesReadInterleavedWeights) {
  const auto copies_of = [](const char* policy, std::int64_t streams) {
    Model model(policy, 32, streams);
    interleave_weights(*model.weights, *model.program);
    if (model.weights->interleaved() == nullptr) return std::size_t{0};
    return runtime::InterleavedWeights::bytes(*model.program, *model.weights);
  };
  std::size_t elements = 0;
  const Model model("32-true", 32, 1);
  for (const plan::Slot& slot : model.program->slots) {
    // Matrices have multiples of 16 rows, except the head, whose 29 are filled up. Nothing multiplies the
    // embeddings.
    if (slot.shape.rank() == 2 && slot.name != "model.embed_tokens.weight")
      elements += static_cast<std::size_t>((slot.shape.leading() + 15) / 16 * 16 * slot.shape.last());
  }
  EXPECT_EQ(copies_of("32-true", 1), 4 * elements);
  EXPECT_EQ(copies_of("32-true", 7), 4 * elements);
  EXPECT_EQ(copies_of("32-true", 8), 0);
  EXPECT_EQ(copies_of("bf16-mixed", 1), 2 * elements);
  EXPECT_EQ(copies_of("16-true", 1), 2 * elements);
  EXPECT_EQ(copies_of("64-true", 1), 0);
  EXPECT_EQ(copies_of("bf16-matmul-x6", 1), 0);
}

TEST(Streams, OfOnePromptFeedItOnce) {
  constexpr std::int64_t kPrompt = 300, kNew = 3;
  std::vector<Request> all;
  for (std::int64_t s = 0; s < 8; ++s) all.push_back({prompt_of(kPrompt, 3), s});
  GenerateOptions options = drawing();
  options.stop.clear();
  options.max_new_tokens = kNew;
  for (const auto& [policy, prompts] :
       {std::pair{"bf16-mixed", 1}, {"bf16-mixed; *: rounding=stochastic", 8}}) {
    for (const std::int64_t streams : {3, 8}) {
      SCOPED_TRACE(::testing::Message() << policy << ", " << streams);
      Model model(policy, kCapacity, streams);
      FedTokens fed;
      model.session.executor().attach(fed);
      model(all, options);
      model.session.executor().detach(fed);
      // The last token of a shared prompt is fed for each sequence, and all new tokens but the last.
      EXPECT_EQ(fed.count, prompts * kPrompt + (8 - prompts) + 8 * (kNew - 1));
    }
  }
}

TEST(Streams, GiveTheBitsOfEachAloneWithEveryFilter) {
  const std::vector<Request> all = requests();
  GenerateOptions options = drawing();
  options.sampling.min_p = 0.02;
  options.sampling.repetition_penalty = 1.2;
  const std::vector<Generation> want = alone("32-true", all, options, kCapacity);
  for (const std::int64_t streams : {2, 5, 16}) {
    SCOPED_TRACE(streams);
    expect_same(Model("32-true", kCapacity, streams)(all, options), want);
  }
  const std::vector<Generation> without = alone("32-true", all, drawing(), kCapacity);
  const auto differs = [&](std::size_t i) { return want[i].ids != without[i].ids; };
  EXPECT_TRUE(differs(0) || differs(1) || differs(2)) << "the filters do nothing";
}

TEST(Streams, GiveTheSameBitsOnEveryInstructionSetAndThreadCount) {
  const std::vector<Request> all = requests();
  for (const char* policy : {"64-true", "32-true", "bf16-mixed", "16-true"}) {
    SCOPED_TRACE(policy);
    const std::vector<Generation> want = Model(policy, kCapacity, 4)(all, drawing());
    for (const kernels::Context& ctx : kernels::testing::contexts()) {
      SCOPED_TRACE(kernels::testing::describe(ctx));
      expect_same(Model(policy, kCapacity, 4, ctx)(all, drawing()), want);
    }
  }
}

/// Sixteen streams are enough rows for tiles.
TEST(Streams, GiveTheSameBitsOnTiles) {
  const std::vector<Request> some = requests();
  std::vector<Request> all = some;
  for (Request r : some) {
    r.sequence += 20;
    all.push_back(r);
  }
  for (const char* policy : {"bf16-mixed", "fp8-hybrid", "bf16-mixed compute=nvfp4 scaling=delayed"}) {
    SCOPED_TRACE(policy);
    const std::vector<Generation> want =
        Model(policy, kCapacity, 16, {.simd = kernels::best_simd()})(all, drawing());
    for (const kernels::Simd simd : kernels::testing::tile_simds()) {
      const kernels::GuardCount before = kernels::guard_count();
      expect_same(Model(policy, kCapacity, 16, {.simd = simd, .threads = 2})(all, drawing()), want);
      EXPECT_GT((kernels::guard_count() - before).fast, 0) << kernels::name(simd);
    }
  }
}

TEST(Streams, DrawByTheirNumberAndPosition) {
  const std::vector<Request> all = requests();
  const std::vector<Generation> g = Model("32-true", kCapacity, 3)(all, drawing());
  EXPECT_EQ(g[1].ids, g[4].ids);  // the same prompt and sequence
  EXPECT_NE(g[1].ids, g[3].ids);  // another sequence of the same prompt
}

TEST(Streams, EndAtAStopIdAtTheLastPositionAndOnRequest) {
  const std::vector<Request> all = requests();
  GenerateOptions o = drawing();
  const std::vector<Generation> whole = Model("32-true", kCapacity, 4)(all, o);
  bool stopped = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto room = static_cast<std::size_t>(kCapacity) - all[i].prompt.size();
    const std::vector<std::int32_t>& ids = whole[i].ids;
    const bool stop = std::find(o.stop.begin(), o.stop.end(), ids.back()) != o.stop.end();
    EXPECT_TRUE(stop || ids.size() == std::min<std::size_t>(12, room)) << i;
    EXPECT_TRUE(std::none_of(ids.begin(), ids.end() - 1, [&](std::int32_t id) {
      return std::find(o.stop.begin(), o.stop.end(), id) != o.stop.end();
    })) << i;
    stopped = stopped || stop;
  }
  EXPECT_TRUE(stopped);
  // The callback gets the request of each token; ending one request does not end others.
  std::vector<std::vector<std::int32_t>> told(all.size());
  o.on_token = [&](std::size_t request, std::int32_t id, double) {
    told[request].push_back(id);
    return request != 2;
  };
  const std::vector<Generation> g = Model("32-true", kCapacity, 4)(all, o);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(told[i], g[i].ids);
    EXPECT_EQ(g[i].ids.size(), i == 2 ? 1 : whole[i].ids.size());
  }
}

TEST(Streams, AskLogitsOfTheLastTokenOnly) {
  // One prompt of three chunks: only its last run needs the head.
  Model model("32-true", 2048, 2);
  std::vector<std::size_t> rows;
  model.session.executor().after_step = [&](const plan::Step& step, const graph::Call& call) {
    if (step.scope == "lm_head") rows.push_back(static_cast<std::size_t>(call.outputs[0].rows));
  };
  GenerateOptions o;
  o.max_new_tokens = 2;
  const Request r{prompt_of(1040, 11), 0};
  model({&r, 1}, o);
  EXPECT_EQ(rows, (std::vector<std::size_t>{0, 0, 1, 1}));
}

TEST(Streams, OneBadPromptIsRefusedBeforeAnythingRuns) {
  Model model("32-true", 8, 2);
  bool ran = false;
  model.session.executor().after_step = [&](const plan::Step&, const graph::Call&) { ran = true; };
  for (const std::vector<std::int32_t>& bad :
       {std::vector<std::int32_t>{}, std::vector<std::int32_t>{29}, prompt_of(8, 1)}) {
    const std::vector<Request> all = {{prompt_of(3, 1), 0}, {bad, 0}};
    EXPECT_THROW(model(all, {}), ConfigError);
  }
  EXPECT_FALSE(ran);
  EXPECT_TRUE(model({}, {}).empty());
}

}  // namespace
}  // namespace mantissa::rollout
