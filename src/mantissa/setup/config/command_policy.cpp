#include "mantissa/setup/config/command_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/precision/compat/deepspeed.h"
#include "mantissa/precision/policy/idle_fields.h"
#include "mantissa/precision/policy/supported.h"

namespace mantissa::config {
namespace {

/// Notes which parts of a DeepSpeed file apply to a command without a run: only the policy.
void tell(const compat::DeepSpeedFile& file, const precision::Policy& policy, bool counts, Told& told) {
  const auto note = [&](const std::string& text) {
    told.notes.push_back(fmt::format("{}: {}", file.short_name(), text));
  };
  const compat::DeepSpeedSetting* setting = file.find("precision", "policy");
  if (setting != nullptr && counts) {
    note(fmt::format("sets precision.policy = {} ({})", setting->value, setting->from));
    if (!file.policy_note.empty()) note(file.policy_note);
  } else if (setting != nullptr) {
    note(fmt::format("--precision overrides {}", setting->from));
  }
  std::vector<std::string> unused;
  for (const compat::DeepSpeedSetting& s : file.settings) {
    if (s.section != "precision") unused.push_back(s.from);
  }
  for (const compat::DeepSpeedSetting& s : file.scaler) {
    const bool scales = policy.loss_scale().kind != precision::LossScale::Kind::none;
    if (!scales && s.said && s.from.starts_with("fp16.")) unused.push_back(s.from);
  }
  unused.insert(unused.end(), file.ignored.begin(), file.ignored.end());
  std::vector<std::string> autos;
  for (const compat::DeepSpeedAuto& a : file.autos) {
    const bool enabled = a.from.ends_with(".enabled");
    autos.push_back(enabled ? fmt::format("{} = false (the policy is {})", a.from, policy.short_line())
                            : a.from + " = nothing");
  }
  if (!autos.empty()) note(fmt::format("\"auto\" became {}", fmt::join(autos, ", ")));
  if (!unused.empty()) note(fmt::format("ignored: {}", fmt::join(unused, ", ")));
}

/// Notes that the rules of `policy` whose indices are not in `kept` are ignored, and why.
void tell_left_out(const precision::Policy& policy, const std::vector<std::size_t>& kept, const char* why,
                   Told& told) {
  std::vector<std::string> left_out;
  for (std::size_t r = 0; r < policy.rules().size(); ++r) {
    const precision::Rule& rule = policy.rules()[r];
    if (std::ranges::find(kept, r) == kept.end())
      left_out.push_back(fmt::format("{} \"{}\"", rule.origin, rule.str()));
  }
  if (!left_out.empty())
    told.notes.push_back(fmt::format("left out: {}: {}", fmt::join(left_out, ", "), why));
}

/// Returns `policy` as it is in step 0 of a run. Notes the ignored rules in `told`.
precision::Policy without_steps(const precision::Policy& policy, Told& told) {
  tell_left_out(policy, policy.rules_at(0), "this command has no steps; only rules of step 0 apply", told);
  return policy.at_step(0);
}

/// Returns true if the rule applies neither to a forward pass nor, with `backward`, to a backward pass.
bool is_of_training(const precision::Rule& rule, bool backward) {
  return rule.names_update() ||
         (!backward && (rule.pass == precision::Pass::backward || rule.operand == "gradient" ||
                        graph::is_of_gradients(rule.op)));
}

}  // namespace

precision::Policy without_training(const precision::Policy& policy, bool backward, Told* told) {
  std::vector<std::size_t> kept;
  for (std::size_t r = 0; r < policy.rules().size(); ++r) {
    if (!is_of_training(policy.rules()[r], backward)) kept.push_back(r);
  }
  if (told != nullptr) {
    tell_left_out(policy, kept,
                  backward ? "this command updates no weights" : "this command runs only a forward pass",
                  *told);
  }
  return policy.with_only(kept);
}

precision::Policy command_policy(const PrecisionArguments& arguments, Told* told, bool backward) {
  const compat::DeepSpeedFile* file = arguments.deepspeed;
  std::string option = "--precision";
  Told said;
  try {
    std::string line = arguments.policy.value_or("32-true");
    const std::optional<std::string> theirs = file != nullptr ? file->policy_line() : std::nullopt;
    if (!arguments.policy && theirs) {
      option = file->name;
      line = *theirs;
    }
    precision::Policy policy = precision::Policy::parse(line, &said.notes);
    if (file != nullptr) tell(*file, policy, !arguments.policy.has_value(), said);
    for (std::size_t i = 0; i < arguments.rules.size(); ++i) {
      option = fmt::format("--rule {}", i + 1);
      policy = policy.with_rule(arguments.rules[i], option);
    }
    precision::check_supported(policy);
    for (std::string& idle : precision::idle_fields(policy)) said.notes.push_back(std::move(idle));
    policy = without_training(without_steps(policy, said), backward, &said);
    if (told != nullptr) *told = std::move(said);
    return policy;
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("{}: {}", option, e.what()));
  }
}

}  // namespace mantissa::config
