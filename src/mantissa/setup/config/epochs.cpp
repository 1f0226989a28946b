#include "mantissa/setup/config/epochs.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "mantissa/core/base/counted.h"
#include "mantissa/setup/config/options.h"

namespace mantissa::config {
namespace {

// As long as long runs are. What depends on the number of steps is settled once it is known.
constexpr std::int64_t kUnknownSteps = 1'000'000;

/// Returns the entry of section.epochs if it counts beside section.other, and sets `epochs` to 0 if not.
const Entry* counting(const Entries& entries, std::string_view section, std::string_view other,
                      std::int64_t value, double& epochs, Told& told) {
  if (epochs == 0) return nullptr;
  const Entry& entry = *entries.find(section, "epochs");
  if (entries.find("run", "stage") != nullptr)
    refuse(entry, "each [[run.stage]] has its own steps; remove the key, or the stages");
  const Entry* steps = entries.find(section, other);
  if (steps == nullptr) return &entry;
  if (is_override(entry) == is_override(*steps))
    refuse(entry, fmt::format("{}: {}.{} is set too; remove one of them", steps->origin, section, other));
  if (!is_override(*steps)) return &entry;
  told.notes.push_back(fmt::format("--set {}.{}={}: replaces {}.epochs = {}", section, other, value, section,
                                   toml_text(epochs)));
  epochs = 0;
  return nullptr;
}

}  // namespace

void settle_epochs(RunConfig& config, const Entries& entries, const std::optional<EpochSteps>& known,
                   Told& told) {
  const auto tell = [&](const Entry& entry, std::string_view key, double& epochs, const std::string& steps) {
    told.notes.push_back(fmt::format(
        "{}: {}.epochs = {}: {} of batch.global_batch_size = {}; an epoch has {}", entry.origin, key,
        toml_text(epochs), steps, config.batch.global_batch_size, counted(known->rows, known->noun)));
    epochs = 0;
  };
  if (const Entry* entry = counting(entries, "run", "steps", config.run.steps, config.run.epochs, told)) {
    config.run.steps = known ? known->steps : kUnknownSteps;
    if (known) tell(*entry, "run", config.run.epochs, counted(known->steps, "step"));
  }
  if (const Entry* entry = counting(entries, "checkpoint", "interval", config.checkpoint.interval,
                                    config.checkpoint.epochs, told)) {
    if (!known) return;
    config.checkpoint.interval = known->interval;
    tell(*entry, "checkpoint", config.checkpoint.epochs,
         fmt::format("a state and a validation every {}", counted(known->interval, "step")));
  }
}

}  // namespace mantissa::config
