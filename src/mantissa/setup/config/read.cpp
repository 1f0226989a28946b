// Converts raw keys to a checked config.
#include "mantissa/setup/config/read.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/model/rope_override.h"
#include "mantissa/precision/policy/idle_fields.h"
#include "mantissa/precision/policy/rule_toml.h"
#include "mantissa/setup/config/fields.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/unknown.h"

namespace mantissa::config {
namespace {

/// `element` names an element of an array in the message: "betas[1] is 1.0, but ".
void check_range(const Entry& entry, const Range& range, double value, const std::string& element = "") {
  if (!std::isfinite(value)) refuse(entry, element + "must be a finite number");
  const bool high_enough = range.above ? value > range.min : value >= range.min;
  const bool low_enough = range.below ? value < range.max : value <= range.max;
  if (!high_enough || !low_enough) refuse(entry, element + "must be " + range_text(range, value));
}

/// Returns true for a whole number, whatever its size.
bool is_digits(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::int64_t whole_number(const Entry& entry, const Range& range) {
  if (const auto* value = entry.value->as_integer()) {
    check_range(entry, range, static_cast<double>(value->get()));
    return value->get();
  }
  const auto* real = entry.value->as_floating_point();
  const bool almost =
      real != nullptr && real->get() == std::floor(real->get()) && std::abs(real->get()) < 1e15;
  if (is_digits(entry.raw)) {
    using Limits = std::numeric_limits<std::int64_t>;
    refuse(entry, fmt::format("must be a whole number from {} to {}",
                              std::isfinite(range.min) ? static_cast<std::int64_t>(range.min) : Limits::min(),
                              range.max < 1e18 ? static_cast<std::int64_t>(range.max) : Limits::max()));
  }
  refuse(entry, almost ? fmt::format("must be a whole number; write {:.0f}", real->get())
                       : "must be a whole number");
}

double real_number(const Entry& entry, const toml::node& node, const Range& range,
                   const std::string& element = "") {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value) refuse(entry, element + "must be a number");
  check_range(entry, range, *value, element);
  return *value;
}

bool flag(const Entry& entry) {
  if (const auto* value = entry.value->as_boolean()) return value->get();
  refuse(entry, "must be true or false");
}

/// Returns the value as a string; for an override also the typed text, whatever its TOML type.
std::string text_value(const Entry& entry) {
  if (const auto* value = entry.value->as_string()) return value->get();
  if (!entry.raw.empty()) return entry.raw;
  const std::optional<std::string> bare = precision::value_text(*entry.value);
  refuse(entry, bare ? fmt::format("must be a string; write \"{}\"", *bare) : "must be a string");
}

bool is_word(const Option& option, const std::string& value) {
  return std::find(option.choices.begin(), option.choices.end(), value) != option.choices.end();
}

std::string resolved(const Option& option, const Entry& entry, const std::string& value) {
  if (value.empty() || is_word(option, value)) return value;
  return std::filesystem::absolute(entry.base / value).lexically_normal().string();
}

/// Reads an entry into the slot of its option, with one overload per type.
struct Reader {
  const Entry& entry;
  const Option& option;

  void operator()(std::string* out) const {
    *out = text_value(entry);
    if (option.path) {
      *out = resolved(option, entry, *out);
      return;
    }
    if (option.choices.empty() || is_word(option, *out)) return;
    const std::string choices = list_of(option.choices);
    refuse(entry, fmt::format("unknown choice{} (choices: {})", did_you_mean(*out, option.choices), choices));
  }
  void operator()(std::int64_t* out) const { *out = whole_number(entry, option.range); }
  void operator()(std::uint64_t* out) const {
    *out = static_cast<std::uint64_t>(whole_number(entry, option.range));
  }
  void operator()(double* out) const { *out = real_number(entry, *entry.value, option.range); }
  void operator()(bool* out) const { *out = flag(entry); }
  void operator()(std::vector<std::string>* out) const {
    *out = read_texts(entry);
    for (std::string& value : *out) {
      if (option.path) value = resolved(option, entry, value);
    }
  }
  void operator()(std::vector<double>* out) const {
    const toml::array* array = entry.value->as_array();
    if (array == nullptr) refuse(entry, "must be an array of numbers, such as [0.7, 0.3]");
    out->clear();
    for (std::size_t i = 0; i < array->size(); ++i) {
      const toml::node& node = *array->get(i);
      out->push_back(real_number(entry, node, option.range,
                                 fmt::format("{}[{}] is {}, but ", entry.key, i, shown(node))));
    }
  }
  void operator()(std::array<double, 2>* out) const {
    const toml::array* array = entry.value->as_array();
    if (array == nullptr || array->size() != 2) refuse(entry, "must be two numbers, such as [0.9, 0.95]");
    for (std::size_t i = 0; i < 2; ++i) {
      const toml::node& node = *array->get(i);
      const std::string element = fmt::format("{}[{}] is {}, but ", entry.key, i, shown(node));
      (*out)[i] = real_number(entry, node, option.range, element);
    }
  }
  void operator()(text::FieldMap* out) const { *out = read_fields(entry); }
  void operator()(Validation* out) const {
    if (entry.value->is_number()) {
      out->share = real_number(entry, *entry.value, option.range);
      return;
    }
    if (!entry.value->is_string() && !entry.value->is_array())
      refuse(entry, "must be a share such as 0.02, or files");
    out->files = read_texts(entry);
    for (std::string& value : out->files) value = resolved(option, entry, value);
  }
};

nlohmann::json to_json(const Entry& entry, const toml::node& node, int depth = 1) {
  constexpr int kDeepest = 32;  // config.json is written back and then read by readers with this limit
  if (depth > kDeepest) refuse(entry, fmt::format("nests deeper than {} levels; flatten it", kDeepest));
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point()) {
    if (!std::isfinite(value->get())) refuse(entry, "must be a finite number");
    return value->get();
  }
  if (const toml::array* array = node.as_array()) {
    nlohmann::json out = nlohmann::json::array();
    for (const toml::node& item : *array) out.push_back(to_json(entry, item, depth + 1));
    return out;
  }
  const toml::table* table = node.as_table();
  if (table == nullptr) refuse(entry, "config.json cannot contain dates; write a string");
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, item] : *table) out[std::string(key.str())] = to_json(entry, item, depth + 1);
  return out;
}

nlohmann::json model_value(const Entry& entry, const model::Field& field) {
  switch (field.kind) {
    case model::Field::Kind::whole:
      return whole_number(entry, {.min = 1, .max = 2147483647});
    case model::Field::Kind::number:
      if (entry.key == "rope_theta" && (entry.value->is_string() || entry.raw == model::kLwm)) {
        if (text_value(entry) == model::kLwm) return std::string(model::kLwm);
        refuse(entry, fmt::format("must be a number, or \"{}\"", model::kLwm));
      }
      return real_number(entry, *entry.value, {.min = 0, .above = true});
    case model::Field::Kind::flag:
      return flag(entry);
    case model::Field::Kind::text:
      return text_value(entry);
    case model::Field::Kind::any:
      return to_json(entry, *entry.value);
  }
  return {};
}

/// Throws for a field under [model] that its family does not read.
void check_model_fields(const Entries& entries) {
  const Entry* type = entries.find("model", "model_type");
  const model::Family* family = model::find_family(type == nullptr ? "llama" : text_value(*type));
  if (family == nullptr) return;  // reported when the model is read
  for (const Entry& entry : entries.all) {
    if (entry.section != "model" || find_option("model", entry.key) != nullptr) continue;
    if (!reads_field(*family, entry.key)) {
      throw ConfigError("{}: model.{} {}", entry.where, entry.key, not_of_family(entry.key, *family));
    }
  }
}

/// Returns the DeepSpeed file named by [precision] deepspeed, or null.
std::optional<compat::DeepSpeedFile> named_deepspeed(const Entries& entries) {
  const Entry* entry = entries.find("precision", "deepspeed");
  if (entry == nullptr) return std::nullopt;
  const std::string path = resolved(*find_option("precision", "deepspeed"), *entry, text_value(*entry));
  if (path.empty()) return std::nullopt;
  return compat::read_deepspeed(path, entry->where + ": precision.deepspeed =");
}

}  // namespace

std::vector<std::string> read_texts(const Entry& entry) {
  std::vector<std::string> values;
  if (const toml::array* array = entry.value->as_array()) {
    for (const toml::node& item : *array) {
      const auto* text = item.as_string();
      if (text == nullptr) refuse(entry, "must be a string, or an array of strings");
      values.push_back(text->get());
    }
    if (values.empty()) refuse(entry, "must not be empty");
  } else {
    values.push_back(text_value(entry));
  }
  for (const std::string& value : values) {
    if (value.empty()) refuse(entry, "must not be empty");
  }
  return values;
}

std::string read_config_file(const std::filesystem::path& path) {
  constexpr std::size_t kLimit = std::size_t{1} << 20;
  if (disk::is_directory(path))
    throw FileError("{}: is a directory; give the path of a config file", path.string());
  return disk::read_text_file(path, kLimit);
}

void set_options(RunConfig& config, const Entries& entries) {
  for (const Entry& entry : entries.all) {
    if (const Option* option = find_option(entry.section, entry.key))
      std::visit(Reader{entry, *option}, option->slot(config));
  }
}

RunConfig parse_config(std::string_view text, const std::filesystem::path& file,
                       std::span<const std::string> overrides, const PrecisionArguments& precision,
                       Told* told, bool of_train, const std::optional<EpochSteps>& epochs) {
  const compat::DeepSpeedFile* deepspeed = precision.deepspeed;
  Entries entries = read_entries(text, file, overrides, deepspeed, precision.policy.has_value());
  std::optional<compat::DeepSpeedFile> named;
  if (deepspeed == nullptr) named = named_deepspeed(entries);
  if (named) {
    deepspeed = &*named;
    entries = read_entries(text, file, overrides, deepspeed, precision.policy.has_value());
  }
  entries.of_train = of_train;
  RunConfig config;
  // A program given on the command line needs no other permission.
  config.allow_programs = std::ranges::any_of(
      overrides, [](const std::string& entry) { return trimmed(entry).starts_with("rl.reward="); });
  set_options(config, entries);
  for (const Entry& entry : entries.all) {
    if (entry.section == "model" && find_option(entry.section, entry.key) == nullptr)
      config.model.fields[entry.key] = model_value(entry, *find_model_field(entry.key));
  }
  check_model_fields(entries);
  config.deepspeed.clear();
  Told notes;
  config.policy = read_policy(entries, precision, notes.notes);
  notes.notes.insert(notes.notes.begin(), entries.notes.begin(), entries.notes.end());
  settle(config, entries, precision.policy.has_value(), deepspeed, epochs, notes);
  if (deepspeed != nullptr) tell_deepspeed(*deepspeed, config, entries, precision.policy.has_value(), notes);
  for (std::string& idle : precision::idle_fields(config.policy)) notes.notes.push_back(std::move(idle));
  if (told != nullptr) *told = std::move(notes);
  return config;
}

RunConfig load_config(const std::filesystem::path& path, std::span<const std::string> overrides,
                      const PrecisionArguments& precision, Told* told, bool of_train,
                      const std::optional<EpochSteps>& epochs) {
  return parse_config(read_config_file(path), path, overrides, precision, told, of_train, epochs);
}

}  // namespace mantissa::config
