#include "mantissa/setup/data/epochs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "mantissa/core/base/error_text.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/pair_rows.h"
#include "mantissa/setup/data/rows.h"

namespace mantissa::data {
namespace {

void check_countable(const config::RunConfig& config) {
  const auto refuse = [](const char* why) {
    throw ConfigError("run.epochs: {}. Fix: set run.steps in its place", why);
  };
  if (config.train.objective == "rl") refuse("a step of rl has rollouts, which answer prompts several times");
  if (is_generated(config.data.source)) refuse("generated rows have no end");
  if (!config.data.weights.empty()) refuse("each source of a mixture has epochs of its own");
}

/// Returns the fewest steps whose rows are at least `rows`.
std::int64_t steps_for(const text::Dataset& set, std::int64_t rows, std::int64_t batch) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 36;  // packs are found one after another
  if (rows > kMostRows) throw ConfigError("run.epochs: {} rows are too many for one run", rows);
  std::int64_t high = 1;
  while (set.rows_of_steps(high, batch) < rows) high *= 2;
  for (std::int64_t low = high / 2; low + 1 < high;) {
    const std::int64_t middle = low + (high - low) / 2;
    (set.rows_of_steps(middle, batch) < rows ? low : high) = middle;
  }
  return high;
}

}  // namespace

config::EpochSteps steps_of_epochs(const config::RunConfig& config, const model::ModelConfig& model) {
  check_countable(config);
  const bool pairs = config.train.objective == "dpo" || config.train.objective == "reward";
  const text::Dataset set =
      pairs ? load_pairs(config, model, nullptr).rows : load_dataset(config, model, {}, nullptr);
  const std::int64_t batch = config.batch.global_batch_size;
  // Streams of successive rows end together: the rows that are too few for one more of each are unused.
  const std::int64_t rows =
      config.data.carry_state ? set.training_rows() / batch * batch : set.training_rows();
  const auto all = static_cast<std::int64_t>(std::ceil(config.run.epochs * static_cast<double>(rows)));
  return {steps_for(set, std::max<std::int64_t>(1, all), batch), rows, pairs ? "pair" : "row"};
}

}  // namespace mantissa::data
