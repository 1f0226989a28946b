// The sections [dpo], [kto] and [rl] of a run.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Returns the keys of [dpo], [kto] and [rl].
std::vector<Option> post_training_options();

/// Returns true if a printed config has the section: [dpo], [kto] and [rl] belong to one objective each.
bool prints_section(const RunConfig& config, std::string_view section);

/// Sets the objective "rl" if a key of [rl] is given without an objective; an alias of one outside [rl] does
/// not. Under the command `train`, [rl] beside a batch.global_batch_size does not either: it is left over
/// from another run. Warns of a section whose objective the run does not have, and resets its keys. Throws
/// ConfigError for keys of [rl] that contradict each other. Under the objective "rl", sets the batch: as many
/// sequences as an optimizer step trains on. A batch of a DeepSpeed file, which counts sequences, sets
/// rl.prompts_per_step. A data.sequence_length that is not given becomes 0, for that of the longest prompt
/// and its response.
void settle_post_training(RunConfig& config, const Entries& entries, Told& told);
/// Returns the batch.global_batch_size of a DeepSpeed file that sets rl.prompts_per_step, or null.
const Entry* deepspeed_prompts(const RunConfig& config, const Entries& entries);

/// Applies `overrides` ("rl.kl=none", as in --set) to `config`, for the command `command`, which has no run
/// and uses only the keys of `section`; "": it uses none. Throws ConfigError for invalid overrides, and for
/// keys of other sections.
void override_section(RunConfig& config, std::string_view command, std::string_view section,
                      std::span<const std::string> overrides);

/// Returns the rows of an item of the batch, which batch sizes count: 2 under objectives on pairs, else 1.
/// Packs have the places of one row.
std::int64_t rows_per_item(const RunConfig& config);

/// Returns the number of training rows of a generator among data.source under the objective "rl": enough
/// for every rollout to have new ones, up to 65536.
std::int64_t generated_row_count(const RunConfig& config);

/// Returns the number of optimizer steps that share the samples of one rollout.
std::int64_t steps_per_rollout(const RlSection& rl);

}  // namespace mantissa::config
