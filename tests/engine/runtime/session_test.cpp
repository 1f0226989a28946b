// Sessions share programs, weights and arenas, and find weights by name.
#include "mantissa/engine/runtime/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/programs/decoding.h"

namespace mantissa::runtime::session_test {
namespace {

using mantissa::testing::best_device;
using mantissa::testing::tiny_llama;

constexpr std::int64_t kLength = 12;

std::shared_ptr<const plan::Program> log_probs(const char* policy, bool train) {
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = kLength;
  return compile(model::build_log_prob(tiny_llama(true), 4 * kLength, kLength, train),
                 precision::Policy::parse(policy), options, best_device());
}

std::shared_ptr<WeightSet> weights_of(WeightSet::Programs programs, std::uint64_t seed) {
  auto weights = std::make_shared<WeightSet>(programs, best_device());
  weights->initialize(seed);
  return weights;
}

std::vector<std::int32_t> ids_of(std::int64_t length, int seed) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < length; ++t) ids.push_back(static_cast<std::int32_t>((seed + 7 * t * t) % 29));
  return ids;
}

std::vector<double> forward(Session& session, const Batch& batch) {
  session.feed(batch);
  session.run(graph::Phase::forward, batch.extent());
  session.run(graph::Phase::evaluate, batch.extent());
  const Values values = session.read("log_prob", batch.tokens());
  std::vector<double> all;
  for (std::size_t t = 0; t < values.size(); ++t) all.push_back(values[t]);
  return all;
}

Batch one_row(int seed) {
  Batch batch;
  batch.add({.ids = ids_of(kLength, seed), .targets = ids_of(kLength, seed + 1)});
  return batch;
}

TEST(Sessions, OfTrainingAndDecodingShareWeightsAndArena) {
  for (const char* policy : {"32-true", "bf16-mixed", "bf16-mixed compute=mxfp4", "bf16-true"}) {
    SCOPED_TRACE(policy);
    const auto train = log_probs(policy, true);
    const auto decode =
        programs::compile_decode(tiny_llama(true), precision::Policy::parse(policy), 20, best_device());
    const auto alone = weights_of(std::array{decode.get()}, 5);
    const auto shared = weights_of(std::array{train.get(), decode.get()}, 5);
    const auto arena =
        std::make_shared<Arena>(std::max(train->memory.arena(), decode->memory.arena()), best_device());
    Session training(train, shared, arena), decoding(decode, shared, arena), separate(decode, alone);
    rollout::GenerateOptions options;
    options.max_new_tokens = 6;
    const std::vector<std::int32_t> prompt = {3, 17, 28};
    const auto want =
        rollout::generate(separate, tiny_llama(true), std::array{rollout::Request{prompt}}, options).front();
    ASSERT_EQ(want.ids.size(), 6U);
    ASSERT_EQ(want.log_probs.size(), 6U);
    const std::vector<double> before = forward(training, one_row(1));
    for (int round = 0; round < 2; ++round) {
      const auto got =
          rollout::generate(decoding, tiny_llama(true), std::array{rollout::Request{prompt}}, options)
              .front();
      EXPECT_EQ(got.ids, want.ids);
      EXPECT_EQ(got.log_probs, want.log_probs);
      EXPECT_EQ(forward(training, one_row(1)), before);
    }
    // Decoding reads no weight that training does not have.
    EXPECT_EQ(shared->bytes(), weights_of(std::array{train.get()}, 5)->bytes());
  }
}

TEST(Sessions, OfOneProgramOverASecondWeightSetCostItsWeightsOnly) {
  const auto program = log_probs("bf16-mixed", false);
  const auto actor = weights_of(std::array{program.get()}, 1),
             reference = weights_of(std::array{program.get()}, 2);
  const auto arena = std::make_shared<Arena>(program->memory.arena(), best_device());
  Session first(program, actor, arena), second(program, reference, arena);
  const std::vector<double> one = forward(first, one_row(1)), two = forward(second, one_row(1));
  EXPECT_NE(one, two);
  EXPECT_EQ(forward(first, one_row(1)), one);
  reference->assign(*actor);
  EXPECT_EQ(forward(second, one_row(1)), one);
  EXPECT_EQ(arena->bytes(), program->memory.arena());
  EXPECT_EQ(reference->bytes(), program->memory.weights());
}

TEST(Sessions, SayWhenAnotherProgramHasUsedTheirMemory) {
  const auto program = log_probs("32-true", true);
  const auto weights = weights_of(std::array{program.get()}, 1);
  const auto arena = std::make_shared<Arena>(program->memory.arena(), best_device());
  Session first(program, weights, arena), second(program, weights, arena);
  forward(first, one_row(1));
  EXPECT_EQ(first.read("log_prob", kLength).size(), static_cast<std::size_t>(kLength));
  second.feed(one_row(2));
  const auto said = [](const auto& use) -> std::string {
    try {
      use();
    } catch (const InternalError& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  const std::string message = "another program has used this program's memory";
  EXPECT_EQ(said([&] { (void)first.read("log_prob", kLength); }).find(message), 0U);
  EXPECT_EQ(said([&] { first.run(graph::Phase::backward, one_row(1).extent()); }).find(message), 0U);
  forward(first, one_row(1));
  EXPECT_EQ(first.read("log_prob", kLength).size(), static_cast<std::size_t>(kLength));
  EXPECT_EQ(said([&] { (void)second.read("log_prob", kLength); }).find(message), 0U);
}

TEST(Sessions, FindWeightsByNameAndNotByTheirOrder) {
  // Decoding builds its graph in another order than a program with a tied head for training may: the names
  // decide. A program of another model has no place here.
  const auto program = log_probs("32-true", false);
  auto reordered = std::make_shared<plan::Program>(*program);
  std::reverse(reordered->slots.begin(), reordered->slots.end());
  const auto last = static_cast<std::int32_t>(program->slots.size()) - 1;
  for (plan::Buffer& b : reordered->buffers) {
    if (b.slot >= 0) b.slot = last - b.slot;
  }
  const auto weights = weights_of(std::array{program.get()}, 1);
  Session straight(program, weights), other(reordered, weights);
  EXPECT_EQ(forward(other, one_row(1)), forward(straight, one_row(1)));
  reordered->slots[0].name = "model.unknown.weight";
  EXPECT_THROW(Session(reordered, weights), InternalError);
}

TEST(Sessions, ReadTheCopyUnderTheirOwnScale) {
  // Two copies of one weight in one format, which rules scale differently forward and backward.
  const auto program = log_probs(
      "bf16-mixed compute=e4m3 scaling=delayed; *.up_proj: pass=backward scaling=delayed margin=3", true);
  const auto weights = weights_of(std::array{program.get()}, 1);
  const auto slot = std::ranges::find(program->slots, "model.layers.0.mlp.up_proj.weight", &plan::Slot::name);
  ASSERT_NE(slot, program->slots.end());
  ASSERT_EQ(slot->copies.size(), 2U);
  EXPECT_NE(weights->find(*program, slot->copies[0]), weights->find(*program, slot->copies[1]));
  const auto index = static_cast<std::size_t>(slot - program->slots.begin());
  for (const std::size_t c : {0U, 1U})
    EXPECT_EQ(weights->find(*program, slot->copies[c]), weights->copy(index, c).data);
}

TEST(Sessions, RefuseInputsThatTheProgramDoesNotHaveOrHold) {
  const auto program = log_probs("32-true", false);
  Session session(program, weights_of(std::array{program.get()}, 1));
  const std::vector<std::int32_t> many(4 * kLength + 1);
  session.write("ids", std::span(many).first(4 * kLength));
  EXPECT_EQ(session.read("log_prob", 4 * kLength).size(), static_cast<std::size_t>(4 * kLength));
  EXPECT_THROW(session.write("ids", many), ShapeError);
  EXPECT_THROW(session.write("idz", std::span(many).first(1)), InternalError);
  EXPECT_THROW(session.write("ids", std::vector<double>(3)), InternalError);
  EXPECT_THROW(session.read("log_prob", 4 * kLength + 1), InternalError);
}

TEST(Batches, PackedDocumentsGiveTheLogProbabilitiesOfSeparateRows) {
  for (const char* policy : {"32-true", "bf16-mixed", "64-true"}) {
    SCOPED_TRACE(policy);
    const auto program = log_probs(policy, false);
    Session session(program, weights_of(std::array{program.get()}, 1));
    std::vector<std::int32_t> ids, targets;
    const std::vector<std::int64_t> documents = {5, 1, 6};
    Batch separate;
    for (std::size_t d = 0; d < documents.size(); ++d) {
      const auto more = ids_of(documents[d], static_cast<int>(d)), next = ids_of(documents[d], 9);
      separate.add({.ids = more, .targets = next});
      ids.insert(ids.end(), more.begin(), more.end());
      targets.insert(targets.end(), next.begin(), next.end());
    }
    Batch packed;
    packed.add({.ids = ids, .targets = targets, .documents = documents});
    EXPECT_EQ(packed.rows(), 1);
    EXPECT_EQ(forward(session, packed), forward(session, separate));
    Batch joined;
    joined.add({.ids = ids, .targets = targets});
    EXPECT_NE(forward(session, joined), forward(session, separate));
  }
}

TEST(Batches, RefuseRowsWhosePartsDoNotFit) {
  Batch batch;
  const std::vector<std::int32_t> ids = {1, 2, 3};
  const std::vector<float> weights = {1, 1};
  const std::vector<std::int64_t> little = {1, 1}, much = {2, 2}, none = {3, 0};
  EXPECT_THROW(batch.add({.ids = {}, .targets = {}}), ShapeError);
  EXPECT_THROW(batch.add({.ids = ids, .targets = std::span(ids).first(2)}), ShapeError);
  EXPECT_THROW(batch.add({.ids = ids, .targets = ids, .weights = weights}), ShapeError);
  for (const auto& documents : {little, much, none})
    EXPECT_THROW(batch.add({.ids = ids, .targets = ids, .documents = documents}), ShapeError);
  EXPECT_EQ(batch.tokens(), 0);
}

}  // namespace
}  // namespace mantissa::runtime::session_test
