// The effect of a DeepSpeed file on a config, and the notes about it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/core/base/error.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/config/read.h"

namespace mantissa::config {
namespace {

using compat::DeepSpeedAuto;
using compat::DeepSpeedFile;
using compat::DeepSpeedSetting;

constexpr std::string_view kMicroBatch = "train_micro_batch_size_per_gpu";

bool scaled(const RunConfig& config) {
  return config.policy.loss_scale().kind != precision::LossScale::Kind::none;
}

/// Returns the compute format of the policy.
std::string compute_of(const RunConfig& config) {
  return precision::field_text(config.policy.fields(), *precision::find_field("compute"));
}

/// Returns the config's value of a key as TOML, or "" without one.
std::string value_of(const RunConfig& config, std::string_view section, std::string_view key) {
  if (section == kLossScale && !scaled(config)) return "";
  if (section == "precision" && key == "policy") return fmt::format("\"{}\"", config.policy.preset());
  if (section == "precision") {
    const precision::Field* field = precision::find_field(key);
    return field == nullptr ? ""
                            : fmt::format("\"{}\"", precision::field_text(config.policy.fields(), *field));
  }
  const Option* option = find_option(section, key);
  if (option == nullptr) return "";
  RunConfig copy = config;
  return toml_text(option->slot(copy));
}

/// Returns for example "train_batch_size = 32 (batch.global_batch_size)".
std::string became(const DeepSpeedAuto& value, const RunConfig& config) {
  if (value.from.ends_with(".enabled")) {
    const std::string format = value.from.starts_with("fp16") ? "f16" : "bf16";
    return fmt::format("{} = {} (the policy is {})", value.from, compute_of(config) == format,
                       config.policy.short_line());
  }
  if (value.from == "gradient_accumulation_steps") {
    return fmt::format("{} = {}", value.from, config.batch.global_batch_size / config.batch.micro_batch_size);
  }
  const std::string text = value_of(config, value.section, value.key);
  return text.empty() ? value.from + " = nothing"
                      : fmt::format("{} = {} ({}.{})", value.from, text, value.section, value.key);
}

/// Returns true if `config` has its value from this setting.
bool counts(const DeepSpeedSetting& setting, const Entries& entries, bool policy_replaced) {
  if (policy_replaced && setting.section == "precision") return false;
  const Entry* entry = entries.find(setting.section, setting.key);
  return entry != nullptr && entry->deepspeed;
}

}  // namespace

bool divide_batch(RunConfig& config, const Entries& entries, const DeepSpeedFile& file) {
  const Entry* micro = entries.find("batch", "micro_batch_size");
  // set by the file or by --set, which take precedence
  if (micro != nullptr && (micro->deepspeed || !micro->raw.empty())) return false;
  const std::int64_t rows = config.batch.global_batch_size;
  if (file.accumulation) {
    const std::int64_t steps = *file.accumulation;
    if (rows % steps != 0) {
      throw ConfigError(
          fmt::format("{}: gradient_accumulation_steps = {} must divide batch.global_batch_size, which is "
                      "{}; change one of them, or set train_batch_size",
                      file.name, steps, rows));
    }
    config.batch.micro_batch_size = rows / steps;
    return true;
  }
  const Entry* global = entries.find("batch", "global_batch_size");
  if (micro == nullptr || global == nullptr || !global->deepspeed) return false;
  // The config's micro-batch was chosen for another batch. Changing it changes no bit.
  std::int64_t& size = config.batch.micro_batch_size;
  size = std::min(size, rows);
  while (rows % size != 0) --size;
  return true;
}

void tell_deepspeed(const DeepSpeedFile& file, const RunConfig& config, const Entries& entries,
                    bool policy_replaced, Told& told) {
  const auto note = [&](const std::string& text) {
    told.notes.push_back(fmt::format("{}: {}", file.short_name(), text));
  };
  const auto warn = [&](const std::string& text) {
    told.warnings.push_back(fmt::format("{}: {}", file.short_name(), text));
  };
  std::vector<std::string> sets, lost, became_of;
  const bool online = config.train.objective == "rl";
  const auto sort = [&](const DeepSpeedSetting& s) {
    if (!s.said) return;
    if (online && s.section == "batch" && s.key == "global_batch_size") {
      if (deepspeed_prompts(config, entries) != nullptr) {
        if (const Entry* prompts = entries.find("rl", "prompts_per_step"))
          note(fmt::format("{} replaces rl.prompts_per_step of {}", s.from, prompts->origin));
        sets.push_back(
            fmt::format("rl.prompts_per_step = {} ({}, in sequences)", config.rl.prompts_per_step, s.from));
      } else if (s.from != kMicroBatch) {
        lost.push_back(fmt::format("rl.prompts_per_step ({})", s.from));
      }
    } else if (counts(s, entries, policy_replaced)) {
      // Report the preset that the file names, even if its other keys modify it.
      const std::string value = s.key == "policy" ? s.value : value_of(config, s.section, s.key);
      sets.push_back(
          fmt::format("{}.{} = {} ({})", s.section, s.key, value.empty() ? s.value : value, s.from));
    } else {
      lost.push_back(fmt::format("{}.{} ({})", s.section, s.key, s.from));
    }
  };
  std::ranges::for_each(file.settings, sort);
  if (file.accumulation) {
    sets.push_back(fmt::format("batch.micro_batch_size = {} (gradient_accumulation_steps)",
                               config.batch.micro_batch_size));
  }
  const bool dynamic = scaled(config) && compute_of(config) == "f16";
  if (dynamic) std::ranges::for_each(file.scaler, sort);
  std::vector<std::string> idle;
  for (const DeepSpeedSetting& s : file.scaler) {
    if (!dynamic && s.said && s.from.starts_with("fp16.")) idle.push_back(s.from);
  }
  if (!sets.empty()) note(fmt::format("sets {}", fmt::join(sets, ", ")));
  const DeepSpeedSetting* policy = file.find("precision", "policy");
  if (!file.policy_note.empty() && counts(*policy, entries, policy_replaced)) note(file.policy_note);
  if (!lost.empty()) note(fmt::format("the command line overrides {}", fmt::join(lost, ", ")));
  if (!idle.empty()) {
    note(fmt::format("{} {} no effect: the policy ({}) {}", fmt::join(idle, ", "),
                     idle.size() == 1 ? "has" : "have", config.policy.short_line(),
                     scaled(config) ? "does not compute in f16" : "has no loss scale"));
  }
  for (const DeepSpeedAuto& value : file.autos) became_of.push_back(became(value, config));
  if (!became_of.empty()) note(fmt::format("\"auto\" became {}", fmt::join(became_of, ", ")));
  std::ranges::for_each(file.notes, note);
  if (!file.ignored.empty()) note(fmt::format("ignored: {}", fmt::join(file.ignored, ", ")));
  std::ranges::for_each(file.warnings, warn);
  const Entry* minimum = entries.find(kLossScale, "raise_error_at_min_scale");
  if (dynamic && !file.scaler_warning.empty() && minimum != nullptr && minimum->deepspeed)
    warn(file.scaler_warning);
  const Entry* warmup = entries.find("schedule", "warmup_steps");
  if (warmup != nullptr && warmup->deepspeed && warmup->value->value<std::int64_t>() > config.run.steps) {
    warn(fmt::format(
        "warmup_num_steps is more than run.steps: the learning rate rises until the last step, {}",
        config.run.steps));
  }
}

}  // namespace mantissa::config
