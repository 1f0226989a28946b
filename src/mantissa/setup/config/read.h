// The steps between raw keys and a checked config.
#pragma once

#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Returns the text of a TOML file, up to one byte more than check_toml_text() accepts. Throws FileError if
/// the file cannot be read.
std::string read_config_file(const std::filesystem::path& path);

/// Returns one string or an array of strings, none of them empty. Throws ConfigError for another value.
std::vector<std::string> read_texts(const Entry& entry);

/// Sets the values of the entries that are options. Throws ConfigError for invalid values.
void set_options(RunConfig& config, const Entries& entries);

/// Returns the policy of the entries of [precision], changed by --precision, fields from --set, and --rule,
/// in this order. Throws ConfigError.
precision::Policy read_policy(const Entries& entries, const PrecisionArguments& arguments,
                              std::vector<std::string>& notes);

/// Sets the defaults that depend on other keys, and checks keys against each other. Throws ConfigError.
/// `policy_replaced`: --precision replaced the policy, so the file's loss scale may be unused. `deepspeed` is
/// the DeepSpeed file, or null. `epochs`: see parse_config. Adds to `told` what differs from the written
/// config.
void settle(RunConfig& config, const Entries& entries, bool policy_replaced,
            const compat::DeepSpeedFile* deepspeed, const std::optional<EpochSteps>& epochs, Told& told);

/// Returns true if PyTorch's rule uses this key of [precision.loss_scale].
bool torch_has(std::string_view key);

/// Reconciles the policy's loss scale with [precision.loss_scale]. Throws ConfigError.
void settle_loss_scale(RunConfig& config, const Entries& entries, bool policy_replaced);

/// Sets batch.micro_batch_size from the file's gradient_accumulation_steps and the global batch. If the file
/// sets only the global batch, uses its largest divisor that is at most the config's value. Returns true if
/// it set the value. Throws ConfigError if the accumulation steps do not divide the batch.
bool divide_batch(RunConfig& config, const Entries& entries, const compat::DeepSpeedFile& file);

/// Reports the settings that the DeepSpeed file changed, the values of its "auto" settings, and its ignored
/// keys. `config` was read from `entries`.
void tell_deepspeed(const compat::DeepSpeedFile& file, const RunConfig& config, const Entries& entries,
                    bool policy_replaced, Told& told);

}  // namespace mantissa::config
