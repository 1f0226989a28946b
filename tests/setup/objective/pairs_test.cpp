// Preference objectives in a session: values by their formulas, gradients of the loss that they report, and
// bits that do not depend on the micro-batches.
#include "mantissa/setup/objective/pairs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>

#include "engine/runtime/device.h"
#include "engine/runtime/program.h"
#include "mantissa/core/base/error.h"

namespace mantissa::objective::pairs_test {
namespace {

constexpr std::int64_t kVocabulary = 29, kLongest = 9, kRows = 6;

/// A training session of a small Llama, with log-probabilities or scores.
class Model {
 public:
  Model(const char* policy, bool scores) {
    plan::CompileOptions options;
    options.longest_row = options.longest_leaf = kLongest;
    model::ModelConfig config = testing::tiny_llama(false, kVocabulary);
    graph::Graph graph;
    if (scores) {
      graph = model::build_scores(model::reward_model(config), kRows * kLongest, kLongest, true);
      graph.value(graph.find("score.weight")).init.std = 0.5;
    } else {
      graph = model::build_log_prob(config, kRows * kLongest, kLongest, true);
    }
    const auto program =
        runtime::compile(graph, precision::Policy::parse(policy), options, testing::best_device());
    auto weights = std::make_shared<runtime::WeightSet>(*program, testing::best_device());
    weights->initialize(3);
    session.emplace(program, weights);
  }

  /// Runs a step of micro-batches of `micro` pairs.
  Outcome run(PairObjective& objective, Pass pass, std::size_t micro = 3, double loss_scale = 1);

  std::vector<std::byte> gradient(std::size_t slot) const {
    const plan::Slot& s = session->program().slots[slot];
    const runtime::Values v = session->read(s.gradient, s.shape.count());
    return {v.data(), v.data() + v.size() * bytes_of(v.type())};
  }
  std::vector<std::vector<std::byte>> gradients() const {
    std::vector<std::vector<std::byte>> all;
    for (std::size_t s = 0; s < session->program().slots.size(); ++s) all.push_back(gradient(s));
    return all;
  }

  std::optional<runtime::Session> session;
};

/// Rows of different lengths, of which the first tokens are a prompt.
runtime::Batch batch_of(std::size_t first_pair, std::size_t pairs) {
  std::mt19937 random(5);
  runtime::Batch batch;
  for (std::size_t r = 0; r < 2 * (first_pair + pairs); ++r) {
    const std::size_t length = 3 + r * 5 % 7;
    std::vector<std::int32_t> ids, targets;
    for (std::size_t t = 0; t < length; ++t) {
      ids.push_back(static_cast<std::int32_t>(random() % kVocabulary));
      targets.push_back(t < length / 2 ? -1 : static_cast<std::int32_t>(random() % kVocabulary));
    }
    if (r >= 2 * first_pair)
      batch.add({.ids = ids, .targets = targets, .sequence = static_cast<std::uint64_t>(r)});
  }
  return batch;
}

Outcome Model::run(PairObjective& objective, Pass pass, std::size_t micro, double loss_scale) {
  objective.begin({.total_weight = 1, .loss_scale = loss_scale});
  runtime::Batch last;
  for (std::size_t pair = 0; pair < kRows / 2; pair += micro) {
    last = batch_of(pair, micro);
    objective::run(*session, {last, static_cast<std::int64_t>(2 * pair)}, objective, pass, pair > 0);
  }
  if (pass == Pass::train) session->run(graph::Phase::finish, last.extent());
  return objective.end();
}

const std::vector<double> kReference = {-3, -7.5, -4, -4.25, -11, -2};
const std::vector<double> kMargins = {0.5, -1, 0.25};

struct Case {
  const char* name;
  bool scores;
  PreferenceSettings settings;
};
const Case kCases[] = {
    {"dpo", false, {}},
    {"cdpo", false, {.beta = 0.5, .label_smoothing = 0.25}},
    {"ipo", false, {.loss = PreferenceLoss::ipo, .beta = 0.4}},
    {"simpo", false, {.loss = PreferenceLoss::simpo, .beta = 2, .gamma = 0.7}},
    {"orpo", false, {.loss = PreferenceLoss::orpo, .beta = 0.3}},
    {"dpo with log-likelihood", false, {.beta = 0.1, .nll_coef = 0.8}},
    {"reward", true, {}},
};

std::unique_ptr<PairObjective> objective_of(const Case& c) {
  std::unique_ptr<PairObjective> objective = c.scores ? reward_model() : dpo(c.settings);
  objective->set_pairs({.pairs = kRows / 2, .reference = kReference, .margins = kMargins});
  return objective;
}

/// The loss and the metrics by their definitions, from the outputs of one pass over all rows.
TEST(PairObjectives, AreTheMeansOfTheirFormulasOverThePairs) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Model model("64-true", c.scores);
    const auto objective = objective_of(c);
    const Outcome got = model.run(*objective, Pass::evaluate);
    const runtime::Batch batch = batch_of(0, kRows / 2);
    const Extent extent = batch.extent();
    const runtime::Values values = model.session->read(c.scores ? "value" : "log_prob", batch.tokens());
    double loss = 0, accuracy = 0, margin = 0, chosen = 0;
    for (std::size_t p = 0; p < kRows / 2; ++p) {
      double sum[2] = {};
      std::int64_t tokens[2] = {};
      for (const std::size_t side : {0U, 1U}) {
        const Row row = extent.rows[2 * p + side];
        if (c.scores) sum[side] = values[static_cast<std::size_t>(row.begin + row.length - 1)];
        for (std::int64_t t = row.begin; t < row.begin + row.length && !c.scores; ++t) {
          const auto i = static_cast<std::size_t>(t);
          if (batch.targets()[i] < 0) continue;
          sum[side] += values[i];
          ++tokens[side];
        }
        if (!c.scores && !c.settings.has_reference()) sum[side] /= static_cast<double>(tokens[side]);
      }
      const bool refers = !c.scores && c.settings.has_reference();
      const double ref[2] = {refers ? kReference[2 * p] : 0, refers ? kReference[2 * p + 1] : 0};
      const double delta = (sum[0] - ref[0]) - (sum[1] - ref[1]);
      const double beta = c.settings.beta, eps = c.settings.label_smoothing;
      const auto sigma = [](double x) { return 1 / (1 + std::exp(-x)); };
      if (c.scores) {
        loss += -std::log(sigma(sum[0] - sum[1] - kMargins[p]));
      } else if (c.settings.loss == PreferenceLoss::ipo) {
        loss += (delta - 1 / (2 * beta)) * (delta - 1 / (2 * beta));
      } else if (c.settings.loss == PreferenceLoss::simpo) {
        loss += -std::log(sigma(beta * delta - c.settings.gamma));
      } else if (c.settings.loss == PreferenceLoss::orpo) {
        const auto odds = [](double x) { return std::exp(x) / (1 - std::exp(x)); };
        loss += -sum[0] - beta * std::log(sigma(std::log(odds(sum[0]) / odds(sum[1]))));
      } else {
        loss += -(1 - eps) * std::log(sigma(beta * delta)) - eps * std::log(sigma(-beta * delta)) -
                c.settings.nll_coef * sum[0] / static_cast<double>(tokens[0]);
      }
      accuracy += delta > 0 ? 1 : 0;
      margin += c.scores ? delta : beta * delta;
      chosen += c.scores ? sum[0] : beta * (sum[0] - ref[0]);
    }
    const double n = kRows / 2;
    // A few dozen operations in f64.
    const auto near = [](double want) { return 64 * 0x1p-53 * (1 + std::abs(want)); };
    EXPECT_NEAR(got.loss, loss / n, near(loss));
    const auto metric = [&](std::string_view name) {
      return std::ranges::find(got.metrics, name, &Metric::name)->value;
    };
    EXPECT_NEAR(metric("accuracy"), accuracy / n, 1e-15);
    EXPECT_NEAR(metric("margin"), margin / n, near(10 * margin));
    EXPECT_NEAR(metric("chosen_reward"), chosen / n, near(10 * chosen));
    EXPECT_NEAR(metric("chosen_reward") - metric("rejected_reward"), metric("margin"), near(100 * chosen));
  }
}

TEST(PairObjectives, AreDifferentiatedInEveryWeight) {
  constexpr double kStep = 1e-5;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Model model("64-true", c.scores);
    const auto objective = objective_of(c);
    const double size = std::abs(model.run(*objective, Pass::train).loss) + 1;
    int moved = 0;
    for (std::size_t s = 0; s < model.session->program().slots.size(); ++s) {
      const std::vector<std::byte> bytes = model.gradient(s);
      auto* weights = static_cast<double*>(model.session->weights().master(s).data);
      for (std::size_t i = 0; i < bytes.size() / sizeof(double); i += 60) {
        double gradient = 0;
        std::memcpy(&gradient, bytes.data() + i * sizeof(double), sizeof gradient);
        const double before = weights[i];
        weights[i] = before + kStep;
        const double above = model.run(*objective, Pass::evaluate).loss;
        weights[i] = before - kStep;
        const double below = model.run(*objective, Pass::evaluate).loss;
        weights[i] = before;
        // The error of central differences is h² times a third derivative of about the loss, for losses of
        // squares of logits a hundred times that, and 2^-52 of the loss over 2 h from rounding.
        EXPECT_NEAR(gradient, (above - below) / (2 * kStep), 1e-8 * size)
            << model.session->program().slots[s].name << " " << i;
        moved += std::abs(gradient) > 1e-5 ? 1 : 0;
      }
    }
    EXPECT_GT(moved, 20);
  }
}

TEST(PairObjectives, HaveTheSameBitsInMicroBatches) {
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed"}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(::testing::Message() << policy << " " << c.name);
      Model model(policy, c.scores);
      const auto objective = objective_of(c);
      const double loss = model.run(*objective, Pass::train, 3).loss;
      const auto gradients = model.gradients();
      EXPECT_EQ(model.run(*objective, Pass::train, 1).loss, loss);
      EXPECT_TRUE(model.gradients() == gradients);
      EXPECT_EQ(model.run(*objective, Pass::evaluate, 1).loss, loss);
    }
  }
}

TEST(PairObjectives, AreScaledInTheirGradientsAndNotInTheirLoss) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Model model("64-true", c.scores);
    const auto objective = objective_of(c);
    const double loss = model.run(*objective, Pass::train).loss;
    const auto plain = model.gradients();
    EXPECT_EQ(model.run(*objective, Pass::train, 3, 1024).loss, loss);
    const auto scaled = model.gradients();
    for (std::size_t s = 0; s < plain.size(); ++s) {
      for (std::size_t i = 0; i < plain[s].size(); i += sizeof(double)) {
        double one = 0, many = 0;
        std::memcpy(&one, plain[s].data() + i, sizeof one);
        std::memcpy(&many, scaled[s].data() + i, sizeof many);
        ASSERT_EQ(many, 1024 * one);
      }
    }
  }
}

TEST(PairObjectives, RefuseHalfAPair) {
  Model model("32-true", true);
  const auto objective = objective_of(kCases[4]);
  objective->begin({});
  const runtime::Batch batch = batch_of(0, 1);
  EXPECT_THROW(objective::run(*model.session, {batch, 1}, *objective, Pass::evaluate), InternalError);
}

}  // namespace
}  // namespace mantissa::objective::pairs_test
