// Objectives against what they mean: the gradient of the loss that they report.
#include "mantissa/setup/objective/objective.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"

namespace mantissa::objective {
namespace {

constexpr std::int64_t kVocabulary = 29, kLength = 9;

/// A training session of a small Llama over its own weights.
class Model {
 public:
  explicit Model(const char* policy, bool join_head, const model::Extras& extras = {}) {
    plan::CompileOptions options;
    options.longest_row = options.longest_leaf = kLength;
    options.join_head = join_head;
    const graph::Graph graph = model::build_log_prob(testing::tiny_llama(false, kVocabulary), 4 * kLength,
                                                     kLength, true, {}, extras);
    const auto program =
        runtime::compile(graph, precision::Policy::parse(policy), options, testing::best_device());
    auto weights = std::make_shared<runtime::WeightSet>(*program, testing::best_device());
    weights->initialize(3);
    session.emplace(program, weights);
    EXPECT_EQ(join_head, std::ranges::any_of(program->steps, [](const plan::Step& s) {
                return s.op->id == "log_prob.training";
              }));
  }

  /// The loss of `batch`, and its gradient where the pass trains.
  Outcome run(Objective& objective, const runtime::Batch& batch, Pass pass, double loss_scale = 1) {
    return run(objective, {&batch, 1}, pass, loss_scale);
  }
  /// The same of a step of several micro-batches.
  Outcome run(Objective& objective, std::span<const runtime::Batch> batches, Pass pass,
              double loss_scale = 1) {
    double total = 0;
    for (const runtime::Batch& batch : batches) {
      for (const float w : batch.weights()) total += static_cast<double>(w);
    }
    objective.begin({.total_weight = total, .loss_scale = loss_scale});
    std::int64_t row = 0;
    for (const runtime::Batch& batch : batches) {
      objective::run(*session, {batch, row}, objective, pass, row > 0);
      row += batch.rows();
    }
    if (pass == Pass::train) session->run(graph::Phase::finish, batches.back().extent());
    return objective.end();
  }
  std::vector<std::byte> gradient(std::size_t slot) const {
    const plan::Slot& s = session->program().slots[slot];
    const runtime::Values v = session->read(s.gradient, s.shape.count());
    return {v.data(), v.data() + v.size() * bytes_of(v.type())};
  }
  std::vector<std::vector<std::byte>> gradients() const {
    std::vector<std::vector<std::byte>> all;
    for (std::size_t s = 0; s < session->program().slots.size(); ++s) {
      all.push_back(gradient(s));
      const bool trained = std::ranges::any_of(all.back(), [](std::byte b) { return b != std::byte{}; });
      EXPECT_TRUE(trained) << session->program().slots[s].name << " has no gradient";
    }
    return all;
  }

  std::optional<runtime::Session> session;
};

/// Rows [first, last) of three.
runtime::Batch batch_of(bool weighted, int first = 0, int last = 3) {
  std::mt19937 random(5);
  runtime::Batch batch;
  for (int r = 0; r < last; ++r) {
    std::vector<std::int32_t> ids, targets;
    std::vector<float> weights;
    for (std::int64_t t = 0; t < kLength; ++t) {
      ids.push_back(static_cast<std::int32_t>(random() % kVocabulary));
      targets.push_back(t % 4 == 3 ? -1 : static_cast<std::int32_t>(random() % kVocabulary));
      weights.push_back(static_cast<float>(random() % 5) / 4);
    }
    if (r < first) continue;
    batch.add({.ids = ids,
               .targets = targets,
               .weights = weighted ? std::span<const float>(weights) : std::span<const float>(),
               .sequence = static_cast<std::uint64_t>(r)});
  }
  return batch;
}

/// Pretraining as an objective that waits for the log-probabilities before it gives its seeds.
class Late final : public Objective {
 public:
  bool seeds_known() const override { return false; }
  void begin(const Step& step) override { inner_->begin(step); }
  void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) override {
    ASSERT_NE(outputs, nullptr);
    EXPECT_LT(outputs->log_prob[0], 0);
    inner_->seeds(micro, nullptr, seeds);
  }
  void observe(const MicroBatch& micro, const Outputs& outputs) override { inner_->observe(micro, outputs); }
  Outcome end() override { return inner_->end(); }

 private:
  std::unique_ptr<Objective> inner_ = pretraining();
};

/// Σ w · p², with p the probability of the target: its seeds, 2 · w · p², need the forward pass.
class SquaredProbability final : public Objective {
 public:
  bool seeds_known() const override { return false; }
  void begin(const Step& step) override { scale_ = step.loss_scale, loss_ = 0; }
  void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) override {
    for (std::size_t t = 0; t < seeds.log_prob.size(); ++t)
      seeds.log_prob[t] = scale_ * 2 * term(micro, *outputs, t);
  }
  void observe(const MicroBatch& micro, const Outputs& outputs) override {
    for (std::size_t t = 0; t < micro.batch.weights().size(); ++t) loss_ += term(micro, outputs, t);
  }
  Outcome end() override { return {loss_, {{"squared_probability", loss_}}}; }

 private:
  static double term(const MicroBatch& micro, const Outputs& outputs, std::size_t t) {
    const double weight = micro.batch.weights()[t];
    return weight == 0 ? 0 : weight * std::exp(2 * outputs.log_prob[t]);
  }
  double scale_ = 1, loss_ = 0;
};

/// Σ w · (p² + 2 · H + v³ + v), with the entropy H and the value v after a token.
class EveryOutput final : public Objective {
 public:
  bool seeds_known() const override { return false; }
  void begin(const Step& step) override { scale_ = step.loss_scale, loss_ = 0; }
  void seeds(const MicroBatch& micro, const Outputs* outputs, const Seeds& seeds) override {
    for (std::size_t t = 0; t < micro.batch.weights().size(); ++t) {
      const double weight = scale_ * micro.batch.weights()[t], v = (*outputs->value)[t];
      seeds.log_prob[t] = weight * 2 * std::exp(2 * outputs->log_prob[t]);
      seeds.entropy[t] = weight * 2;
      seeds.value[t] = weight * (3 * v * v + 1);
    }
  }
  void observe(const MicroBatch& micro, const Outputs& outputs) override {
    for (std::size_t t = 0; t < micro.batch.weights().size(); ++t) {
      const double weight = micro.batch.weights()[t], v = (*outputs.value)[t];
      loss_ += weight * (std::exp(2 * outputs.log_prob[t]) + 2 * (*outputs.entropy)[t] + v * v * v + v);
    }
  }
  Outcome end() override { return {loss_}; }

 private:
  double scale_ = 1, loss_ = 0;
};

TEST(Objectives, WhoseSeedsAreKnownLaterGiveTheBitsOfTheFusedHead) {
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed", "64-true"}) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(::testing::Message() << policy << (weighted ? ", weighted" : ""));
      const runtime::Batch batch = batch_of(weighted);
      Model fused(policy, true), split(policy, false);
      const std::unique_ptr<Objective> known = pretraining();
      Late late;
      const double loss = fused.run(*known, batch, Pass::train).loss;
      EXPECT_EQ(split.run(late, batch, Pass::train).loss, loss);
      EXPECT_TRUE(split.gradients() == fused.gradients());
      EXPECT_EQ(fused.run(*known, batch, Pass::evaluate).loss, loss);
      EXPECT_EQ(split.run(late, batch, Pass::evaluate).loss, loss);
    }
  }
}

/// Compares the gradients of every 40th weight with central differences. With h = 1e-5 their error is h²
/// times a third derivative, and 2^-52 of the loss over 2 h from rounding: below 1e-8 where the loss is
/// about 1.
void check_gradients(Model& model, Objective& objective) {
  const runtime::Batch batch = batch_of(true);
  model.run(objective, batch, Pass::train);
  constexpr double kStep = 1e-5;
  int compared = 0;
  for (std::size_t s = 0; s < model.session->program().slots.size(); ++s) {
    const std::vector<std::byte> bytes = model.gradient(s);
    const Matrix master = model.session->weights().master(s);
    auto* weights = static_cast<double*>(master.data);
    for (std::size_t i = 0; i < bytes.size() / sizeof(double); i += 40) {
      double gradient = 0;
      std::memcpy(&gradient, bytes.data() + i * sizeof(double), sizeof gradient);
      const double before = weights[i];
      weights[i] = before + kStep;
      const double above = model.run(objective, batch, Pass::evaluate).loss;
      weights[i] = before - kStep;
      const double below = model.run(objective, batch, Pass::evaluate).loss;
      weights[i] = before;
      EXPECT_NEAR(gradient, (above - below) / (2 * kStep), 1e-8 * std::max(1.0, std::abs(above)))
          << model.session->program().slots[s].name;
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

TEST(Objectives, AreDifferentiatedThroughWhatTheyMakeOfLogProbabilities) {
  Model model("64-true", false);
  SquaredProbability objective;
  check_gradients(model, objective);
}

TEST(Objectives, AreDifferentiatedThroughEntropiesAndValues) {
  Model model("64-true", false, {.entropy = model::Entropy::trained, .value = true});
  EveryOutput objective;
  check_gradients(model, objective);
}

TEST(Objectives, ThatNeedLogProbabilitiesRefuseAProgramThatComputesThemLater) {
  Model fused("32-true", true);
  Late late;
  const runtime::Batch batch = batch_of(false);
  EXPECT_THROW(fused.run(late, batch, Pass::train), InternalError);
}

TEST(Objectives, HaveTheSameBitsInMicroBatches) {
  const runtime::Batch whole = batch_of(true);
  const runtime::Batch parts[] = {batch_of(true, 0, 1), batch_of(true, 1, 2), batch_of(true, 2, 3)};
  for (const char* policy : {"32-true", "bf16-mixed"}) {
    SCOPED_TRACE(policy);
    Model fused(policy, true), split(policy, false);
    const std::unique_ptr<Objective> known = pretraining();
    Late late;
    const double loss = fused.run(*known, whole, Pass::train).loss;
    const auto gradients = fused.gradients();
    EXPECT_EQ(fused.run(*known, parts, Pass::train).loss, loss);
    EXPECT_TRUE(fused.gradients() == gradients);
    EXPECT_EQ(fused.run(*known, parts, Pass::evaluate).loss, loss);
    EXPECT_EQ(split.run(late, parts, Pass::train).loss, loss);
    EXPECT_TRUE(split.gradients() == gradients);
  }
}

TEST(Objectives, AreScaledInTheirGradientsAndNotInTheirLoss) {
  constexpr double kScale = 1024;
  const runtime::Batch batch = batch_of(true);
  for (const bool join : {false, true}) {
    Model model("64-true", join);
    Late late;
    const std::unique_ptr<Objective> known = pretraining();
    Objective& objective = join ? *known : late;
    const double loss = model.run(objective, batch, Pass::train).loss;
    const auto plain = model.gradients();
    EXPECT_EQ(model.run(objective, batch, Pass::train, kScale).loss, loss);
    const auto scaled = model.gradients();
    for (std::size_t s = 0; s < plain.size(); ++s) {
      for (std::size_t i = 0; i < plain[s].size(); i += sizeof(double)) {
        double one = 0, many = 0;
        std::memcpy(&one, plain[s].data() + i, sizeof one);
        std::memcpy(&many, scaled[s].data() + i, sizeof many);
        ASSERT_EQ(many, kScale * one) << model.session->program().slots[s].name;
      }
    }
  }
}

TEST(Pretraining, IsTheWeightedMeanOverTheWholeStep) {
  Model model("64-true", true);
  const std::unique_ptr<Objective> objective = pretraining();
  const runtime::Batch batch = batch_of(true);
  const double loss = model.run(*objective, batch, Pass::evaluate).loss;
  ASSERT_GT(loss, 0);
  const runtime::Values log_prob = model.session->read("log_prob", batch.tokens());
  double sum = 0, total = 0;
  for (std::size_t t = 0; t < batch.weights().size(); ++t) {
    sum += static_cast<double>(batch.weights()[t]) * log_prob[t];
    total += static_cast<double>(batch.weights()[t]);
  }
  EXPECT_NEAR(loss, -sum / total, 32 * 0x1p-53 * std::abs(loss));  // 27 additions in another order
}

}  // namespace
}  // namespace mantissa::objective
