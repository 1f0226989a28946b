// The section [adapter] of a run.
#pragma once

#include <optional>

#include "mantissa/engine/model/config.h"
#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Checks the keys of [adapter] against each other. Throws ConfigError.
void check_adapter(const RunConfig& config, const Entries& entries);

/// Returns true if a printed config has the key: without an adapter only `kind`, and no settings that an
/// adapter to continue from has.
bool prints_adapter_key(const AdapterSection& adapter, std::string_view key);

/// Returns the format in which the frozen weights of a run with an adapter are held, or null for that of the
/// policy.
std::optional<Scalar> base_format(const AdapterSection& adapter);
/// Returns the format of the blocks that hold the frozen weights of its linear layers, or null.
std::optional<QuantFormat> base_blocks(const AdapterSection& adapter);

/// Returns `policy` as it applies to a run with this adapter. The frozen weights have base_format(). The
/// adapter's parameters and those of new heads, their gradients and moments are f32 or wider. Rules apply
/// after both. Without an
/// adapter returns `policy`.
precision::Policy adapted_policy(const precision::Policy& policy, const AdapterSection& adapter);
/// Returns the same for a model with an adapter, for commands without a config. `policy` for another model,
/// unless its base has a plain format of its own.
precision::Policy adapted_policy(const precision::Policy& policy, const model::ModelConfig& model);

}  // namespace mantissa::config
