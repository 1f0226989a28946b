#include "mantissa/setup/data/epochs.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "mantissa/core/base/error_text.h"
#include "mantissa/setup/data/generated.h"
#include "mantissa/setup/data/labelled_rows.h"
#include "mantissa/setup/data/pair_rows.h"
#include "mantissa/setup/data/rows.h"

namespace mantissa::data {
namespace {

void check_countable(const config::RunConfig& config) {
  const bool run = config.run.epochs != 0;
  const auto refuse = [&](const char* why) {
    throw ConfigError("{}: {}. Fix: set {} in its place", run ? "run.epochs" : "checkpoint.epochs", why,
                      run ? "run.steps" : "checkpoint.interval");
  };
  if (config.train.objective == "rl") refuse("a step of rl has rollouts, which answer prompts several times");
  if (is_generated(config.data.source)) refuse("generated rows have no end");
  if (!config.data.weights.empty()) refuse("each source of a mixture has epochs of its own");
}

/// Returns the fewest steps that train `epochs` of `key` with `of_epoch` rows each, or 0 for none.
std::int64_t steps_for(const text::Dataset& set, const char* key, double epochs, std::int64_t of_epoch,
                       std::int64_t batch) {
  if (epochs == 0) return 0;
  constexpr std::int64_t kMostRows = std::int64_t{1} << 36;  // packs are found one after another
  const auto rows =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(epochs * static_cast<double>(of_epoch))));
  if (rows > kMostRows) throw ConfigError("{}: {} rows are too many for one run", key, rows);
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
  const text::Dataset set = pairs                             ? load_pairs(config, model, nullptr).rows
                            : config.train.objective == "kto" ? load_labelled(config, model, nullptr).rows
                                                              : load_dataset(config, model, {}, nullptr);
  const std::int64_t batch = config.batch.global_batch_size;
  // Streams of successive rows end together: the rows that are too few for one more of each are unused.
  const std::int64_t rows =
      config.data.carry_state ? set.training_rows() / batch * batch : set.training_rows();
  return {steps_for(set, "run.epochs", config.run.epochs, rows, batch), rows, pairs ? "pair" : "row",
          steps_for(set, "checkpoint.epochs", config.checkpoint.epochs, rows, batch)};
}

}  // namespace mantissa::data
