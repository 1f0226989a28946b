// The steps between the keys that were said and a checked config.
#pragma once

#include "mantissa/config/entries.h"
#include "mantissa/config/run_config.h"

namespace mantissa::config {

/// The text of a TOML file, at most one byte more than check_toml_text() takes. Throws FileError where it
/// cannot be read.
std::string read_config_file(const std::filesystem::path& path);

/// The policy that the entries of [precision] say. Throws ConfigError.
precision::Policy read_policy(const Entries& entries, std::vector<std::string>& notes);

/// The config's policy under --precision and --rule. Throws ConfigError.
precision::Policy apply_precision(const precision::Policy& config, const PrecisionArguments& arguments,
                                  std::vector<std::string>& notes);

/// Fills in the defaults that depend on other keys, and checks what no key can be checked for alone. Throws
/// ConfigError. `policy_replaced`: by --precision, so that the file's loss scale may have nothing to scale.
/// `divided`: batch.micro_batch_size has its value.
void settle(RunConfig& config, const Entries& entries, bool policy_replaced, bool divided = false);

/// Whether key `key` of [precision.loss_scale] means anything to PyTorch's rule.
bool torch_has(std::string_view key);

/// Brings the policy's loss scale and [precision.loss_scale] into agreement. Throws ConfigError.
void settle_loss_scale(RunConfig& config, const Entries& entries, bool policy_replaced);

/// Gives batch.micro_batch_size what the file's gradient_accumulation_steps make of the global batch, or,
/// where the file says the global batch alone, the largest divisor up to what the config's text says; whether
/// it did. Throws ConfigError where the accumulation steps do not divide the batch.
bool divide_batch(RunConfig& config, const Entries& entries, const compat::DeepSpeedFile& file);

/// What the DeepSpeed file changed, what its "auto" values became, and what it says that has no place here.
/// `entries`: those that `config` was made from.
void tell_deepspeed(const compat::DeepSpeedFile& file, const RunConfig& config, const Entries& entries,
                    bool policy_replaced, Told& told);

}  // namespace mantissa::config
