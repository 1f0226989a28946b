#include "mantissa/report/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::report {
namespace {

using test::contents_of;
using test::message_of;
using test::put;

class Metrics : public test::TemporaryFolder {
 protected:
  std::filesystem::path file() const { return folder / "metrics.jsonl"; }
  void write_steps(std::int64_t first, std::int64_t last, std::int64_t resumed) const {
    MetricsWriter writer(file(), resumed);
    for (StepMetrics m{.step = first}; m.step <= last; ++m.step) writer.write(m);
  }
  std::vector<std::int64_t> steps() const {
    std::ifstream lines(file());
    std::vector<std::int64_t> found;
    for (std::string line; std::getline(lines, line);) found.push_back(nlohmann::json::parse(line)["step"]);
    return found;
  }
};

StepMetrics some() {
  return {.step = 7,
          .loss = 5.5451774444795623,
          .tokens = 57344,
          .grad_norm = 3.0 / 7,
          .lr = 1.05e-5,
          .loss_scale = 65536,
          .skipped = true,
          .tokens_per_second = 3391.04,
          .peak_share = 0.78,
          .seconds = 2.5};
}

TEST_F(Metrics, ALineHoldsTheKeysInTheirOrder) {
  EXPECT_EQ(
      metrics_line(some()),
      R"({"step":7,"loss":5.54517744,"tokens":57344,"grad_norm":0.428571429,"lr":1.05e-05,"loss_scale":65536,"skipped":true,)"
      R"("tokens_per_second":3391.04,"peak_share":0.78,"seconds":2.5})");
  EXPECT_EQ(validation_line(300, 1.23456789012), R"({"step":300,"validation_loss":1.23456789})");
}

TEST_F(Metrics, ALineEndsWithTheMetricsOfTheObjective) {
  StepMetrics m;
  m.more = {{"reward", 0.25}, {"a \"name\"", std::numeric_limits<double>::infinity()}};
  const std::string line = metrics_line(m);
  EXPECT_TRUE(line.ends_with(R"("seconds":0,"reward":0.25,"a \"name\"":null})")) << line;
  EXPECT_EQ(nlohmann::json::parse(line)["reward"], 0.25);
}

TEST_F(Metrics, WithoutALossScaleItIsNull) {
  StepMetrics m = some();
  m.loss_scale.reset();
  EXPECT_TRUE(nlohmann::json::parse(metrics_line(m))["loss_scale"].is_null());
}

TEST_F(Metrics, NonFiniteValuesAreNullAndTheLineIsJson) {
  StepMetrics m = some();
  m.loss = std::numeric_limits<double>::quiet_NaN();
  m.grad_norm = std::numeric_limits<double>::infinity();
  const auto json = nlohmann::json::parse(metrics_line(m));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["grad_norm"].is_null());
  EXPECT_TRUE(nlohmann::json::parse(validation_line(1, m.loss))["validation_loss"].is_null());
}

TEST_F(Metrics, ALearningRateIsReadBackExactly) {
  StepMetrics m = some();
  m.lr = 0.1 * 3e-4;
  EXPECT_EQ(nlohmann::json::parse(metrics_line(m))["lr"].get<double>(), m.lr);
}

TEST_F(Metrics, EveryLineIsThereAtOnce) {
  MetricsWriter writer(file());
  writer.write(some());
  EXPECT_EQ(contents_of(file()), metrics_line(some()) + "\n");
  writer.write_validation(7, 2);
  EXPECT_EQ(contents_of(file()), metrics_line(some()) + "\n" + R"({"step":7,"validation_loss":2})" + "\n");
}

TEST_F(Metrics, AResumedRunKeepsTheLinesUpToItsStep) {
  write_steps(1, 5, 0);
  const std::string five = contents_of(file());
  write_steps(4, 6, 3);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(contents_of(file()).substr(0, five.size()), five);
}

TEST_F(Metrics, TheValidationOfTheResumedStepIsKept) {
  write_steps(1, 3, 0);
  {
    MetricsWriter writer(file(), 3);
    writer.write_validation(3, 1.5);
    writer.write({.step = 4});
    writer.write_validation(4, 1.25);
  }
  MetricsWriter resumed(file(), 3);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2, 3, 3}));
}

TEST_F(Metrics, TheValidationBeforeTheFirstStepIsStepZero) {
  {
    MetricsWriter writer(file());
    writer.write_validation(0, 1.5);
    writer.write({.step = 1});
  }
  MetricsWriter resumed(file(), 1);
  resumed.write_validation(0, 1.5);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{0, 1}));
}

TEST_F(Metrics, ANewRunKeepsNothing) {
  put(file(), "whatever was here");
  write_steps(1, 2, 0);
  EXPECT_EQ(steps(), (std::vector<std::int64_t>{1, 2}));
}

TEST_F(Metrics, ALineTruncatedByACrashIsRemoved) {
  write_steps(1, 2, 0);
  const std::string two = contents_of(file());
  for (const std::string& torn :
       {std::string("{\"step\":3,\"lo"), std::string(100, '\0'), metrics_line({.step = 2})}) {
    put(file(), two + torn);
    MetricsWriter resumed(file(), 9);
    EXPECT_EQ(contents_of(file()), two) << torn;
  }
}

TEST_F(Metrics, LinesThatACrashFilledWithZerosAreRemoved) {
  const std::string one = metrics_line({.step = 1}) + "\n", three = metrics_line({.step = 3}) + "\n";
  put(file(), one + metrics_line({.step = 2}).substr(0, 9) + std::string(50, '\0') + "}\n" + three);
  MetricsWriter resumed(file(), 3);
  EXPECT_EQ(contents_of(file()), one + three);
  EXPECT_NE(resumed.note().find("1 line that a crash had damaged was removed"), std::string::npos);
}

TEST_F(Metrics, AnInvalidLineIsAnErrorWithItsNumberAndNothingIsLost) {
  for (const char* foreign : {"not json", "[1]", "{}", R"({"step":"1"})", R"({"step":1.5})", ""}) {
    const std::string text =
        metrics_line({.step = 1}) + "\n" + foreign + "\n" + metrics_line({.step = 2}) + "\n";
    put(file(), text);
    EXPECT_NE(message_of<FileError>([&] { MetricsWriter writer(file(), 2); }).find("line 2"),
              std::string::npos)
        << foreign;
    EXPECT_EQ(contents_of(file()), text);
  }
}

TEST_F(Metrics, AMissingFolderIsRefused) {
  EXPECT_NE(message_of<FileError>([&] { MetricsWriter writer(folder / "none" / "m"); }).find("none/m"),
            std::string::npos);
}

}  // namespace
}  // namespace mantissa::report
