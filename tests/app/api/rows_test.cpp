// Data in memory: rows with labels and weights, rows given step by step, and the functions that use them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <stop_token>

#include "app/api/tiny.h"
#include "mantissa/app/api/error.h"
#include "mantissa/app/api/mantissa.h"

namespace mantissa::api {
namespace {

using testing::into;
using testing::TemporaryFolder;
using testing::tiny_config;

constexpr std::int64_t kLength = 32;  // data.sequence_length of tiny_config

std::vector<std::int32_t> some_tokens(std::int64_t count) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(static_cast<std::int32_t>((i * i + 3 * i) % 251));
  return ids;
}

/// Returns the sequences of a stream as separate rows.
std::vector<Row> as_rows(const std::vector<std::int32_t>& tokens) {
  std::vector<Row> rows;
  for (auto first = tokens.begin(); tokens.end() - first > kLength; first += kLength)
    rows.push_back({{first, first + kLength + 1}, {}, {}});
  return rows;
}

/// Rows of different lengths, with ignored labels and different weights.
std::vector<Row> mixed_rows(std::int64_t count, std::int64_t first = 0) {
  std::vector<Row> rows;
  for (std::int64_t r = first; r < first + count; ++r) {
    Row row{some_tokens(kLength + 1 - 5 * (r % 4)), {}, {}};
    for (std::int32_t& id : row.ids) id = (id + static_cast<std::int32_t>(r) * 17) % 256;
    row.labels = row.ids;
    for (std::size_t t = 0; t < row.ids.size(); ++t) {
      if (t % 3 == static_cast<std::size_t>(r % 3)) row.labels[t] = kIgnoredLabel;
      row.weights.push_back(0.25F * static_cast<float>((t + static_cast<std::size_t>(r)) % 5));
    }
    rows.push_back(row);
  }
  return rows;
}

/// Trains one run of 6 steps and returns its files and losses.
struct Trained {
  Summary summary;
  std::vector<double> losses;
};
Trained trained(const std::filesystem::path& out, Data data, const std::string& policy = "32-true",
                int micro = 2) {
  Trained t;
  TrainOptions o = into(out);
  o.data = std::move(data);
  Events events;
  events.on_step = [&](const Step& step) { t.losses.push_back(step.loss); };
  t.summary = train(Config::parse(tiny_config(6, policy, micro)), o, events);
  return t;
}

TEST(MemoryRows, OfWeightOneTrainToTheBitsOfTheStream) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> tokens = some_tokens(40 * kLength + 1);
  std::vector<Row> rows = as_rows(tokens);
  const Trained stream = trained(folder / "stream", {.tokens = tokens});
  const Trained plain = trained(folder / "plain", {.rows = rows});
  for (Row& row : rows) {
    row.labels = row.ids;
    row.labels.front() = kIgnoredLabel;  // the first label is unused
    row.weights.assign(row.ids.size(), 1);
  }
  const Trained said = trained(folder / "said", {.rows = rows});
  for (const Trained* t : {&plain, &said}) {
    EXPECT_EQ(t->losses, stream.losses);
    EXPECT_EQ(t->summary.weights_xxh64, stream.summary.weights_xxh64);
    EXPECT_EQ(t->summary.tokens, stream.summary.tokens);
    EXPECT_EQ(t->summary.validation_loss, stream.summary.validation_loss);
  }
}

TEST(MemoryRows, TheLossIsTheWeightedMeanOverTheWholeStep) {
  const TemporaryFolder folder;
  const std::vector<Row> rows = mixed_rows(4);
  const Trained base = trained(folder / "base", {.tokens = some_tokens(2000)});
  TrainOptions o = into(folder / "run");
  o.data.rows = rows;
  std::vector<double> losses;
  Events events;
  events.on_step = [&](const Step& step) { losses.push_back(step.loss); };
  const Config config =
      Config::parse("[run]\nsteps = 1\n[model]\npath = \"" + base.summary.model.string() +
                    "\"\n[data]\nsource = \"memory\"\nsequence_length = 32\nshuffle = false\nvalidation = 0\n"
                    "[batch]\nglobal_batch_size = 4\nmicro_batch_size = 2\n[schedule]\nwarmup_steps = 0\n");
  const Summary summary = train(config, o, events);
  double sum = 0, weight = 0;
  std::int64_t predicted = 0;
  for (const Row& row : rows) {
    TraceOptions t;
    t.model = base.summary.model;
    t.ids = {row.ids};
    const Trace trace_of_row = trace(t);
    const Tensor* log_probs = nullptr;
    for (const Tensor& tensor : trace_of_row.tensors) {
      if (tensor.name == "log_probs") log_probs = &tensor;
    }
    ASSERT_NE(log_probs, nullptr);
    const auto* of = reinterpret_cast<const float*>(log_probs->bytes.data());
    for (std::size_t i = 1; i < row.ids.size(); ++i) {
      if (row.labels[i] == kIgnoredLabel) continue;
      ++predicted;
      sum -= static_cast<double>(row.weights[i]) * static_cast<double>(of[i - 1]);
      weight += static_cast<double>(row.weights[i]);
    }
  }
  ASSERT_EQ(losses.size(), 1U);
  EXPECT_EQ(summary.tokens, predicted);
  // Both are sums of fewer than 4 · 32 positive numbers in double.
  EXPECT_NEAR(losses.front(), sum / weight, 4 * 32 * 2 * std::ldexp(1.0, -53) * sum / weight);
}

TEST(MemoryRows, BitsDoNotDependOnTheMicroBatchOrOnAFactorOfAllWeights) {
  const TemporaryFolder folder;
  for (const char* policy : {"32-true", "bf16-mixed", "16-mixed"}) {
    const std::string at = std::string(policy) + "-";
    const Trained two = trained(folder / (at + "2"), {.rows = mixed_rows(9)}, policy);
    EXPECT_EQ(trained(folder / (at + "4"), {.rows = mixed_rows(9)}, policy, 4).summary.weights_xxh64,
              two.summary.weights_xxh64);
    std::vector<Row> rows = mixed_rows(9);
    for (Row& row : rows) {
      for (float& w : row.weights) w *= 8;  // exact
    }
    EXPECT_EQ(trained(folder / (at + "8"), {.rows = rows}, policy).summary.weights_xxh64,
              two.summary.weights_xxh64);
  }
}

TEST(MemoryRows, AnIgnoredLabelIsALabelOfWeightZero) {
  const TemporaryFolder folder;
  std::vector<Row> rows = mixed_rows(9);
  const Trained ignored = trained(folder / "ignored", {.rows = rows});
  for (Row& row : rows) {
    for (std::size_t t = 0; t < row.ids.size(); ++t) {
      if (row.labels[t] != kIgnoredLabel) continue;
      row.labels[t] = 7;
      row.weights[t] = 0;
    }
  }
  const Trained zero = trained(folder / "zero", {.rows = rows});
  EXPECT_EQ(zero.summary.weights_xxh64, ignored.summary.weights_xxh64);
  EXPECT_EQ(zero.losses, ignored.losses);
}

TEST(MemoryRows, ThatAreHeldOutGiveTheValidationLossThatEvaluateGives) {
  const TemporaryFolder folder;
  const Data data{.tokens = some_tokens(2000), .held_out = mixed_rows(5, 3)};
  const Trained t = trained(folder / "run", data);
  ASSERT_TRUE(t.summary.validation_loss);
  const Evaluation e = evaluate(t.summary.model, Data{.rows = mixed_rows(5, 3)}, kLength);
  // The same log-probabilities in another order of sums: 5 · 32 terms in double.
  EXPECT_NEAR(e.loss, *t.summary.validation_loss, 5 * 32 * 2 * std::ldexp(1.0, -53) * e.loss);
  EXPECT_LT(e.tokens, 5 * kLength);
  const Config config = Config::parse(tiny_config(6, "32-true"), {"run.out=" + (folder / "run").string()});
  EXPECT_EQ(evaluate(config, 0, {}, data).loss, e.loss);
}

TEST(MemoryRows, TokensInMemoryAreEvaluatedAsThoseOfAFile) {
  const TemporaryFolder folder;
  const std::vector<std::int32_t> tokens = some_tokens(500);
  const Trained t = trained(folder / "run", {.tokens = tokens});
  std::ofstream(folder / "text.txt", std::ios::binary) << std::string(tokens.begin(), tokens.end());
  const Evaluation file = evaluate(t.summary.model, {(folder / "text.txt").string()}, "text", kLength, 0, {});
  const Evaluation memory = evaluate(t.summary.model, Data{.tokens = tokens}, kLength);
  EXPECT_EQ(memory.loss, file.loss);
  EXPECT_EQ(memory.tokens, file.tokens);
  EXPECT_EQ(memory.bits_per_byte, 0);  // the tokens are not known to be bytes
}

TEST(MemoryRows, ReplaceTheSourceInAPlanToo) {
  const std::string text = std::regex_replace(tiny_config(6, "32-true"), std::regex("\"kk\""), "\"memory\"");
  const Config config = Config::parse(text);
  EXPECT_THROW(explain(config), FileError);
  EXPECT_GT(explain(config, {}, {}, {.rows = mixed_rows(9)}).predicted_peak_bytes, 0U);
  EXPECT_THROW(explain(config, {}, {}, {.rows = {{{1, 256}, {}, {}}}}), ConfigError);
}

TEST(MemoryRows, ThatDoNotFitAreRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](Data data) -> std::string {
    try {
      trained(folder / "run", std::move(data));
    } catch (const ConfigError& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_NE(refused({.rows = {{{1, 256}, {}, {}}}}).find("rows[0]: ids[1] is 256"), std::string::npos);
  EXPECT_NE(refused({.rows = mixed_rows(9), .held_out = {{{1}, {}, {}}}}).find("held_out[0]: has 1 id;"),
            std::string::npos);
  EXPECT_NE(refused({.tokens = some_tokens(2000), .rows = mixed_rows(9)}).find("give exactly one of"),
            std::string::npos);
  Row masked{{1, 2, 3}, {kIgnoredLabel, kIgnoredLabel, kIgnoredLabel}, {}};
  EXPECT_NE(refused({.rows = std::vector<Row>(9, masked)}).find("nothing to predict"), std::string::npos);
}

TEST(DataCallback, GivesTheRowsOfEachStepAndAResumedRunEndsWithTheSameBytes) {
  const TemporaryFolder folder;
  std::vector<std::int64_t> asked;
  const auto next = [&](std::int64_t step) {
    asked.push_back(step);
    return mixed_rows(4, 4 * step);
  };
  const Config config = Config::parse(tiny_config(6, "bf16-mixed"));
  TrainOptions o = into(folder / "whole");
  o.data.next = next;
  const Summary whole = train(config, o);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_FALSE(whole.validation_loss);

  asked.clear();
  o.out = folder / "parts";
  std::stop_source stop;
  Events events;
  events.on_step = [&](const Step& step) {
    if (step.step == 4) stop.request_stop();
  };
  EXPECT_TRUE(train(config, o, events, stop.get_token()).interrupted);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{1, 2, 3, 4}));
  asked.clear();
  o.resume = 0;
  EXPECT_EQ(train(config, o).weights_xxh64, whole.weights_xxh64);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{5, 6}));
}

TEST(DataCallback, ThatGivesTooFewRowsOrThrowsEndsTheRun) {
  const TemporaryFolder folder;
  EXPECT_THROW(trained(folder / "few", {.next = [](std::int64_t) { return mixed_rows(3); }}), ConfigError);
  const auto thrower = [](std::int64_t) -> std::vector<Row> { throw std::domain_error("mine"); };
  EXPECT_THROW(trained(folder / "thrown", {.next = thrower}), std::domain_error);
}

}  // namespace
}  // namespace mantissa::api
