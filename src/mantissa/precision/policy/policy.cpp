#include "mantissa/precision/policy/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/precision/compat/foreign.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/precision/policy/presets.h"
#include "mantissa/precision/policy/rule.h"

namespace mantissa::precision {
namespace {

constexpr std::string_view kDefaultPreset = "32-true";
constexpr std::string_view kCustom = "custom";
constexpr std::size_t kLongestLine = 65536;

/// Splits at semicolons: the fields, then the rules. No field, scope or rule contains a semicolon.
std::vector<std::string_view> segments(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(';', begin);
    parts.push_back(trimmed(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// Parses "[preset] field=value …", separated by white space or commas (jmp uses commas). Fields that are not
/// named are those of the preset, or of `before`, after which none is named.
Fields parse_fields(std::string_view text, const Fields* before = nullptr) {
  const std::size_t equals = text.find('=');
  if (text.find(':') < equals && equals != std::string_view::npos) {
    throw ConfigError(
        fmt::format("{} is a rule; a policy begins with a preset or fields, and rules follow after \";\"",
                    in_quotes(text)));
  }
  Fields base = before != nullptr ? *before : find_preset(kDefaultPreset).fields;
  Fields said;
  bool first = before == nullptr;
  for (const std::string_view word : split_words(text, " \t\r\n,")) {
    const std::size_t at = word.find('=');
    if (at != std::string_view::npos) {
      const Field* field = find_field(word.substr(0, at));
      if (field != nullptr && !field_text(said, *field).empty()) {
        throw ConfigError(fmt::format("{} is set twice; keep one", field->name));
      }
      set_field(said, word.substr(0, at), word.substr(at + 1));
    } else if (first) {
      base = find_preset(word).fields;
    } else {
      throw ConfigError(fmt::format("{} is not field=value; write it without spaces, such as compute=bf16",
                                    in_quotes(word)));
    }
    first = false;
  }
  overlay(base, said);
  return base;
}

/// Returns the format that `rule` gives to an interior op or to the update. `alone`: the rule sets nothing
/// but compute.
Scalar inside_format(const Rule& rule, bool alone) {
  const std::optional<Scalar> format =
      alone && rule.fields.compute ? parse_scalar((*rule.fields.compute)->name) : std::nullopt;
  if (format) return *format;
  throw ConfigError(
      fmt::format("rule {} ({}): {} supports only a plain number format for compute, such as compute=bf16{}",
                  in_quotes(rule.str()), rule.origin, rule.op.empty() ? "the update" : rule.op,
                  alone ? "" : "; set other fields in a rule without op"));
}

}  // namespace

Policy::Policy() : preset_(kDefaultPreset), fields_(find_preset(kDefaultPreset).fields) {}

Policy Policy::parse(std::string_view text, std::vector<std::string>* notes) {
  if (text.size() > kLongestLine)
    throw ConfigError(fmt::format("a policy line has at most {} characters", kLongestLine));
  const std::vector<std::string_view> parts = segments(text);
  if (parts.front().empty()) {
    throw ConfigError(
        "the policy is empty; write a preset (64-true, 32-true, bf16-mixed) or fields such as compute=bf16");
  }
  try {
    const std::optional<compat::Foreign> foreign = compat::read_foreign(parts.front());
    if (foreign && notes != nullptr)
      notes->insert(notes->end(), foreign->notes.begin(), foreign->notes.end());
    Fields fields = parse_fields(foreign ? foreign->line : parts.front());
    if (foreign) fields = parse_fields(foreign->more, &fields);
    Policy policy = Policy().with_fields(fields);
    if (foreign) {
      for (const std::string& rule : foreign->rules) policy = policy.with_rule(rule, "policy");
    }
    for (std::size_t i = 1; i < parts.size(); ++i) {
      if (!parts[i].empty())
        policy = policy.with_rule(parts[i], fmt::format("policy rule {}", policy.rules_.size() + 1));
    }
    return policy;
  } catch (const ConfigError& e) {
    throw ConfigError(fmt::format("policy {}: {}", in_quotes(trimmed(text)), e.what()));
  }
}

Policy Policy::with_rule(std::string_view text, std::string origin) const {
  return with_rule(parse_rule(text, std::move(origin)));
}

Policy Policy::with_rule(Rule rule) const {
  check_rule(rule);
  Policy out = *this;
  out.rules_.push_back(std::move(rule));
  return out;
}

Policy Policy::with_default(Rule rule) const {
  check_rule(rule);
  Policy out = *this;
  out.defaults_.push_back(std::move(rule));
  return out;
}

std::vector<const Rule*> Policy::applying(const Use& use) const {
  std::vector<const Rule*> found;
  for (const std::vector<Rule>* rules : {&defaults_, &rules_}) {
    for (const Rule& rule : *rules) {
      if (matches(rule, use)) found.push_back(&rule);
    }
  }
  return found;
}

Policy Policy::with_fields(const Fields& fields) const {
  Policy out = *this;
  overlay(out.fields_, fields);
  const Preset* preset = preset_of(out.fields_);
  out.preset_ = preset != nullptr ? preset->name : kCustom;
  return out;
}

std::string Policy::title() const {
  return short_line() + (rules_.empty() ? "" : " with rules");
}

std::string Policy::short_line() const {
  if (preset_ != kCustom) return preset_;
  std::string nearest;
  std::size_t fewest = field_table().size() + 1;
  for (const Preset& preset : presets()) {
    std::string text = preset.name;
    std::size_t different = 0;
    for (const Field& field : field_table()) {
      const std::string value = field_text(fields_, field);
      if (value == field_text(preset.fields, field)) continue;
      text += fmt::format(" {}={}", field.name, value);
      ++different;
    }
    if (different >= fewest) continue;
    fewest = different;
    nearest = std::move(text);
  }
  return nearest;
}

std::string Policy::line() const {
  std::string text = fields_text(fields_, true);
  for (const Rule& rule : rules_) text += "; " + rule.str();
  return text;
}

std::string Policy::toml() const {
  std::string text = fmt::format("[precision]\npolicy = \"{}\"  # {}\n", fields_text(fields_, true), preset_);
  if (rules_.empty()) return text + "rules = []\n";
  text += "rules = [\n";
  for (const Rule& rule : rules_) {
    const std::string form = rule.str();
    text += form.starts_with('{') && form.ends_with('}') ? fmt::format("  {},\n", form)
                                                         : fmt::format("  \"{}\",\n", form);
  }
  return text + "]\n";
}

Scalar Policy::arithmetic() const {
  return *fields_.params == Scalar::f64 ? Scalar::f64 : Scalar::f32;
}

namespace {

/// Returns the scaling that `automatic` means for a format: the published recipe of nvfp4 computes the scale
/// of a tensor from the tensor itself, those of 8-bit tensors from its history.
Scaling scaling_of(Scaling scaling, const Compute& compute) {
  if (scaling != Scaling::automatic) return scaling;
  const bool nvfp4 = compute->scaled == Scaled::block && compute->block == BlockFormat::nvfp4;
  return nvfp4 ? Scaling::current : Scaling::delayed;
}

}  // namespace

Resolved Policy::resolve(const Use& use) const {
  Fields fields = fields_;
  Resolved out;
  for (const Rule* rule : applying(use)) overlay(fields, rule->fields);
  out.params = *fields.params;
  out.compute = *fields.compute;
  out.accumulator = *fields.accumulate;
  if (out.accumulator.card == Card::none) out.accumulator.block = *fields.accumulate_block;
  out.accumulate_order = *fields.accumulate_order;
  out.residual = *fields.residual;
  out.output = *fields.output;
  out.output_via_compute = fields.output_via_compute.value_or(false);
  out.grads = *fields.grads;
  out.optimizer = *fields.optimizer;
  out.kv = *fields.kv;
  out.state = *fields.state;
  out.rounding = *fields.rounding;
  out.kahan = *fields.kahan;
  out.saturate = *fields.saturate;
  out.flush_subnormals = *fields.flush_subnormals;
  out.scaling = scaling_of(*fields.scaling, out.compute);
  out.scale_margin = *fields.scale_margin;
  out.amax_history = *fields.amax_history;
  out.scale_rounding = *fields.scale_rounding;
  out.gradient_rounding = *fields.gradient_rounding;
  out.weight_block = *fields.weight_block;
  out.activation_block = *fields.activation_block;
  out.hadamard = *fields.hadamard;
  out.weights = *fields.weights;
  out.norm_cast = *fields.norm_cast;
  return out;
}

std::optional<Scalar> Policy::interior(const Use& use) const {
  std::optional<Scalar> format;
  for (const std::size_t i : matching_rules(use)) {
    Fields others = rules_[i].fields;
    others.compute = {};
    format = inside_format(rules_[i], others == Fields());
  }
  return format;
}

std::optional<Scalar> Policy::update_arithmetic(const Use& use) const {
  std::optional<Scalar> format;
  for (const std::size_t i : matching_rules(use)) {
    const Rule& rule = rules_[i];
    const bool names_it = rule.op == use.op || rule.pass == Pass::update;
    if (names_it && rule.fields.compute) format = inside_format(rule, true);
  }
  return format;
}

std::optional<Compute> Policy::update_compute(const Use& use) const {
  std::optional<Compute> compute;
  for (const std::size_t i : matching_rules(use)) {
    const Rule& rule = rules_[i];
    if (rule.pass != Pass::update || !rule.fields.compute) continue;
    compute = rule.fields.compute;
    if ((*compute)->scaled == Scaled::none) continue;
    throw ConfigError(
        fmt::format("rule {} ({}): products of an update do not support scaled formats; use a plain "
                    "one such as compute=bf16",
                    in_quotes(rule.str()), rule.origin));
  }
  return compute;
}

AccumulateOrder Policy::update_order(const Use& use) const {
  AccumulateOrder order = AccumulateOrder::by_factors;
  for (const std::size_t i : matching_rules(use)) {
    const Rule& rule = rules_[i];
    if (rule.pass == Pass::update) order = rule.fields.accumulate_order.value_or(order);
  }
  return order;
}

Accumulator Policy::update_accumulator(const Use& use, Scalar factor) const {
  Accumulator value;
  if (find_card_sum(*fields_.accumulate, factor, factor)) value = *fields_.accumulate;
  for (const std::size_t i : matching_rules(use)) {
    const Rule& rule = rules_[i];
    if (rule.pass == Pass::update && rule.fields.accumulate) value = *rule.fields.accumulate;
  }
  return value;
}

bool Policy::compensates(std::string_view name) const {
  return resolve({name, "update", Pass::update}).kahan &&
         !holds(resolve(master_use(name)).params, arithmetic());
}

Use master_use(std::string_view name) {
  return {.scope = name.substr(0, name.rfind('.')), .op = "parameter", .tensor = name};
}

Rounding Policy::activation_rounding(const Use& use) const {
  Rounding rounding = Rounding::nearest;
  for (const std::size_t i : matching_rules(use)) rounding = rules_[i].fields.rounding.value_or(rounding);
  return rounding;
}

Policy Policy::at_step(std::int64_t step) const {
  Policy out = with_only(rules_at(step));
  for (Rule& rule : out.rules_) rule.first_step = rule.last_step = std::nullopt;
  return out;
}

Policy Policy::with_only(std::span<const std::size_t> rules) const {
  Policy out = *this;
  out.rules_.clear();
  for (const std::size_t i : rules) out.rules_.push_back(rules_[i]);
  return out;
}

std::vector<std::size_t> Policy::rules_at(std::int64_t step) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    if (step >= rule.first_step.value_or(0) && (!rule.last_step || step < *rule.last_step))
      found.push_back(i);
  }
  return found;
}

std::vector<std::int64_t> Policy::changes() const {
  std::set<std::int64_t> steps;
  for (const Rule& rule : rules_) {
    if (rule.first_step.value_or(0) > 0) steps.insert(*rule.first_step);
    if (rule.last_step) steps.insert(*rule.last_step);
  }
  return {steps.begin(), steps.end()};
}

std::string Policy::decided_by(const Use& use, std::span<const std::string_view> names) const {
  std::string by = preset_ == kCustom ? "policy line" : preset_;
  for (const Rule* rule : applying(use)) {
    const auto sets = [&](std::string_view name) {
      return !field_text(rule->fields, *find_field(name)).empty();
    };
    if (std::ranges::any_of(names, sets)) by = rule->origin;
  }
  return by;
}

std::vector<std::size_t> Policy::matching_rules(const Use& use) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (matches(rules_[i], use)) found.push_back(i);
  }
  return found;
}

bool operator==(const Policy& a, const Policy& b) {
  return a.fields_ == b.fields_ && a.defaults_ == b.defaults_ && a.rules_ == b.rules_;
}

}  // namespace mantissa::precision
