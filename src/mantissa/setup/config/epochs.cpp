#include "mantissa/setup/config/epochs.h"

#include <fmt/format.h>

#include "mantissa/core/base/counted.h"
#include "mantissa/setup/config/options.h"

namespace mantissa::config {
namespace {

// As long as long runs are. What depends on the number of steps is settled once it is known.
constexpr std::int64_t kUnknownSteps = 1'000'000;

}  // namespace

void settle_epochs(RunConfig& config, const Entries& entries, const std::optional<EpochSteps>& known,
                   Told& told) {
  double& epochs = config.run.epochs;
  if (epochs == 0) return;
  const Entry& entry = *entries.find("run", "epochs");
  if (entries.find("run", "stage") != nullptr)
    refuse(entry, "each [[run.stage]] has its own steps; remove the key, or the stages");
  if (const Entry* steps = entries.find("run", "steps"); steps != nullptr) {
    if (is_override(entry) == is_override(*steps))
      refuse(entry, fmt::format("{}: run.steps is set too; remove one of them", steps->origin));
    if (is_override(*steps)) {
      told.notes.push_back(
          fmt::format("--set run.steps={}: replaces run.epochs = {}", config.run.steps, toml_text(epochs)));
      epochs = 0;
      return;
    }
  }
  config.run.steps = known ? known->steps : kUnknownSteps;
  if (!known) return;
  told.notes.push_back(fmt::format("{}: run.epochs = {}: {} of batch.global_batch_size = {}; an epoch has {}",
                                   entry.origin, toml_text(epochs), counted(known->steps, "step"),
                                   config.batch.global_batch_size, counted(known->rows, known->noun)));
  epochs = 0;
}

}  // namespace mantissa::config
