#include "mantissa/report/summary.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"

namespace mantissa::report {
namespace {

class SummaryFile : public test::TemporaryFolder {};

RunSummary some_summary() {
  return {.steps = 300,
          .final_loss = 0.1 + 0.2,
          .validation_loss = 1.5,
          .tokens = 2'457'600,
          .seconds = 12.5,
          .predicted_peak_bytes = 765'000'000'000,
          .measured_peak_bytes = 1,
          .skipped = 2,
          .policy = "params=f32",
          .weights_xxh64 = "00ff00ff00ff00ff"};
}

TEST_F(SummaryFile, HoldsEveryKeyInOrder) {
  const auto json = nlohmann::ordered_json::parse(summary_json(some_summary()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"steps", "final_loss", "validation_loss", "tokens", "seconds",
                                            "predicted_peak_bytes", "measured_peak_bytes", "skipped",
                                            "policy", "weights_xxh64"}));
  EXPECT_EQ(json["final_loss"], 0.1 + 0.2);
  EXPECT_EQ(json["predicted_peak_bytes"], 765'000'000'000);
  EXPECT_EQ(json["weights_xxh64"], "00ff00ff00ff00ff");
}

TEST_F(SummaryFile, MissingAndNonFiniteValuesAreNull) {
  RunSummary summary = some_summary();
  summary.validation_loss.reset();
  summary.final_loss = std::numeric_limits<double>::quiet_NaN();
  const auto json = nlohmann::json::parse(summary_json(summary));
  EXPECT_TRUE(json["validation_loss"].is_null());
  EXPECT_TRUE(json["final_loss"].is_null());
}

TEST_F(SummaryFile, IsReplacedAtomically) {
  test::put(folder / "summary.json", std::string(5000, 'x'));
  write_summary(folder / "summary.json", some_summary());
  EXPECT_EQ(test::contents_of(folder / "summary.json"), summary_json(some_summary()));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  EXPECT_THROW(write_summary(folder / "none" / "summary.json", some_summary()), FileError);
}

}  // namespace
}  // namespace mantissa::report
