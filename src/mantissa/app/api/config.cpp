#include "mantissa/app/api/config.h"

#include <fmt/format.h>

#include <optional>

#include "mantissa/app/api/internal.h"
#include "mantissa/app/api/version.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/policy/emit.h"
#include "mantissa/precision/policy/presets.h"
#include "mantissa/precision/policy/rule.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/aliases.h"
#include "mantissa/setup/config/command_policy.h"
#include "mantissa/setup/config/key_help.h"
#include "mantissa/setup/config/unknown.h"
#include "mantissa/setup/data/epochs.h"
#include "mantissa/setup/weights/adapted.h"

namespace mantissa::api {

namespace {

/// Precision arguments, and the DeepSpeed file that they name.
struct Arguments {
  explicit Arguments(const Precision& precision) : all{precision.policy, precision.rules, nullptr} {
    if (precision.deepspeed.empty()) return;
    file = compat::read_deepspeed(precision.deepspeed);
    all.deepspeed = &*file;
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::optional<compat::DeepSpeedFile> file;
  config::PrecisionArguments all;
};

/// Returns a key without its values, spellings and defaults.
ConfigKeyHelp key_of(const config::OptionInfo& o) {
  return {o.section, o.key, o.type, o.default_value, o.description, {}, {}, {}};
}

/// Adds the warnings about rules that match nothing whatever the model is.
void add_rule_warnings(const precision::Policy& policy, config::Told& told) {
  for (std::string& warning : plan::inserted_step_warnings(policy))
    told.warnings.push_back(std::move(warning));
}

/// Reads a config with `read`, and once more with the steps of its epochs, which its data tell.
template <class Read>
config::RunConfig with_steps(const Read& read, config::Told& told) {
  config::RunConfig config = read(std::nullopt, &told);
  if (config.run.epochs == 0 && config.checkpoint.epochs == 0) return config;
  const config::EpochSteps epochs = data::steps_of_epochs(config, weights::find_run_model(config).config);
  return read(std::optional(epochs), &told);
}

}  // namespace

Config Config::load(const std::filesystem::path& path, const std::vector<std::string>& overrides,
                    const Precision& precision, bool of_train) {
  const Arguments arguments(precision);
  Impl impl;
  impl.run = with_steps(
      [&](const auto& epochs, config::Told* told) {
        return config::load_config(path, overrides, arguments.all, told, of_train, epochs);
      },
      impl.told);
  add_rule_warnings(impl.run.policy, impl.told);
  return Config(std::make_shared<const Impl>(std::move(impl)));
}

Config Config::parse(std::string_view text, const std::vector<std::string>& overrides,
                     const Precision& precision) {
  const Arguments arguments(precision);
  Impl impl;
  impl.run = with_steps(
      [&](const auto& epochs, config::Told* told) {
        return config::parse_config(text, std::filesystem::current_path() / "config", overrides,
                                    arguments.all, told, false, epochs);
      },
      impl.told);
  add_rule_warnings(impl.run.policy, impl.told);
  return Config(std::make_shared<const Impl>(std::move(impl)));
}

Config Config::allow_programs() const {
  Impl allowed = *impl_;
  allowed.run.allow_programs = true;
  return Config(std::make_shared<const Impl>(std::move(allowed)));
}

std::string Config::toml() const {
  return impl_->run.to_toml();
}
std::filesystem::path Config::out() const {
  return impl_->run.run.out;
}
std::string Config::objective() const {
  return impl_->run.train.objective;
}
std::string Config::policy() const {
  return fmt::format("{}: {}", impl_->run.policy.title(), impl_->run.policy.line());
}

const std::vector<std::string>& Config::notes() const {
  return impl_->told.notes;
}
const std::vector<std::string>& Config::warnings() const {
  return impl_->told.warnings;
}

precision::Policy policy_for(const Precision& precision, config::Told* told, bool backward) {
  const Arguments arguments(precision);
  return config::command_policy(arguments.all, told, backward);
}

precision::Policy policy_for(const Precision& precision, const weights::ModelSource& source, bool backward) {
  return config::adapted_policy(policy_for(precision, nullptr, backward), source.config);
}

Reading read_precision(const Precision& precision, bool backward) {
  config::Told told;
  const precision::Policy policy = policy_for(precision, &told, backward);
  add_rule_warnings(policy, told);
  return {fmt::format("{}: {}", policy.title(), policy.line()), told.notes, told.warnings};
}

Emitted emitted(const Precision& precision, const std::string& system) {
  const precision::Emitted e = precision::emitted(policy_for(precision, nullptr, true), system);
  return {e.settings, e.missing};
}

Emitted Config::emitted(const std::string& system) const {
  const precision::Emitted e = precision::emitted(impl_->run.policy, system);
  return {e.settings, e.missing};
}

std::vector<Preset> presets() {
  std::vector<Preset> all;
  for (const precision::Preset& p : precision::presets())
    all.push_back({p.name, p.aliases, std::string(p.meaning), precision::Policy::parse(p.name).line()});
  return all;
}

std::vector<std::string> rule_keys() {
  return precision::rule_keys();
}

std::string version() {
  return "0.1.0";
}
std::string config_help(std::size_t columns, std::string_view section) {
  return config::options_help(columns, section);
}

std::vector<ConfigKeyHelp> config_keys() {
  std::vector<ConfigKeyHelp> keys;
  for (config::OptionInfo& o : config::options()) keys.push_back(key_of(o));
  return keys;
}

ConfigKeyHelp config_key_help(std::string_view name) {
  for (const config::OptionInfo& o : config::options()) {
    if (fmt::format("{}.{}", o.section, o.key) != name) continue;
    config::KeyHelp help = config::help_of(o);
    ConfigKeyHelp key = key_of(o);
    key.values = std::move(help.values);
    key.spellings = std::move(help.spellings);
    key.defaults = std::move(help.defaults);
    return key;
  }
  throw ConfigError(fmt::format("{}: is not a key of a config; see mantissa help keys", name));
}

ConfigKey find_config_key(std::string_view word) {
  const config::KnownKey key = config::find_key(word);
  return {key.name, key.note, config::about_alias(word)};
}

}  // namespace mantissa::api
