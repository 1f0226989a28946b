// A config as TOML, and its keys as help.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "mantissa/core/base/words.h"
#include "mantissa/engine/model/rope_override.h"
#include "mantissa/precision/policy/fields.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/optimizer.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/config/read.h"
#include "mantissa/setup/config/stages.h"

namespace mantissa::config {
namespace {

constexpr std::string_view kNoFields = "{}";

std::string list_text(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + toml_text(item);
  return fmt::format("[{}]", text);
}

struct Print {
  std::string operator()(const std::string* v) const { return toml_text(*v); }
  std::string operator()(const std::int64_t* v) const { return std::to_string(*v); }
  std::string operator()(const std::uint64_t* v) const { return std::to_string(*v); }
  std::string operator()(const double* v) const { return toml_text(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const std::vector<std::string>* v) const {
    return v->size() == 1 ? toml_text(v->front()) : list_text(*v);
  }
  std::string operator()(const std::vector<double>* v) const {
    std::string text;
    for (const double number : *v) text += (text.empty() ? "" : ", ") + toml_text(number);
    return fmt::format("[{}]", text);
  }
  std::string operator()(const std::array<double, 2>* v) const {
    return fmt::format("[{}, {}]", toml_text((*v)[0]), toml_text((*v)[1]));
  }
  std::string operator()(const text::FieldMap* v) const {
    std::string text;
    for (const text::MappedField& field : *v)
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", field.name, (*this)(&field.from));
    return fmt::format("{{{}}}", text);
  }
  std::string operator()(const Validation* v) const {
    return v->files.empty() ? toml_text(v->share) : list_text(v->files);
  }
};

struct TypeName {
  const Option& option;
  std::string operator()(const std::string*) const { return option.path ? "path" : "string"; }
  std::string operator()(const std::int64_t*) const { return "whole number"; }
  std::string operator()(const std::uint64_t*) const { return "whole number"; }
  std::string operator()(const double*) const { return "number"; }
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const std::vector<std::string>*) const {
    return option.path ? "path or paths" : "string or strings";
  }
  std::string operator()(const std::vector<double>*) const { return "numbers"; }
  std::string operator()(const std::array<double, 2>*) const { return "two numbers"; }
  std::string operator()(const Validation*) const { return "number, path or paths"; }
  std::string operator()(const text::FieldMap*) const { return "table"; }
};

std::string type_name(model::Field::Kind kind) {
  switch (kind) {
    case model::Field::Kind::whole:
      return "whole number";
    case model::Field::Kind::number:
      return "number";
    case model::Field::Kind::flag:
      return "true or false";
    case model::Field::Kind::text:
      return "string";
    case model::Field::Kind::any:
      return "as in config.json";
  }
  return {};
}

/// Returns the keys of `section` that have a value in `config`, as TOML.
std::string section_text(RunConfig& config, std::string_view section) {
  std::string text;
  for (const Option& option : option_table()) {
    if (option.section != section) continue;
    if (section == "optimizer" && !takes(config.optimizer.name, option.key)) continue;
    if (section == "adapter" && !prints_adapter_key(config.adapter, option.key)) continue;
    const std::string value = toml_text(option.slot(config));
    if ((section == "model" && value == "\"\"") || value == kNoFields) continue;
    if (section == "precision.loss_scale" && config.loss_scale.rule == "torch" && !torch_has(option.key))
      continue;
    text += fmt::format("{} = {}\n", option.key, value);
  }
  if (section == "model") {
    for (const auto& [key, value] : config.model.fields.items())
      text += fmt::format("{} = {}\n", key, toml_text(value));
  }
  return text;
}

void add_groups(std::vector<OptionInfo>& all) {
  all.push_back(
      {"optimizer", "group", "tables", "[]",
       "[[optimizer.group]] with match = \"SCOPE\" and lr_scale, weight_decay, freeze or quantize; for each "
       "key, the last matching group with that key applies"});
}

void add_stages(std::vector<OptionInfo>& all) {
  all.push_back(
      {"run", "stage", "tables", "[]",
       "[[run.stage]], consecutive parts of the run with steps, sequence_length, rope_theta, lr, "
       "warmup_steps, global_batch_size, micro_batch_size and source; an omitted key has the value of its "
       "section"});
}

void add_precision(std::vector<OptionInfo>& all) {
  all.push_back({"precision", "policy", "string", "\"32-true\"", "a preset or a policy line"});
  all.push_back(
      {"precision", "rules", "list of rules", "[]", "\"SCOPE: field=value …\", or tables; later ones win"});
  const precision::Policy base;
  for (const precision::Field& field : precision::field_table()) {
    all.push_back({"precision", std::string(field.name), "policy field",
                   toml_text(precision::field_text(base.fields(), field)), std::string(field.meaning)});
  }
}

}  // namespace

std::string toml_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      text += fmt::format("\\u{:04x}", byte);
    } else {
      text += c;
    }
  }
  return text + '"';
}

std::string toml_text(double value) {
  std::string text = fmt::format("{}", value);
  // TOML distinguishes floats from integers by their text
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string toml_text(const nlohmann::json& value) {
  if (value.is_string()) return toml_text(value.get_ref<const std::string&>());
  if (value.is_number_float()) return toml_text(value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ", ";
    text += value.is_object() ? fmt::format("{} = {}", toml_text(key), toml_text(item)) : toml_text(item);
  }
  return value.is_object() ? fmt::format("{{{}}}", text) : fmt::format("[{}]", text);
}

std::string toml_text(const Slot& slot) {
  return std::visit(Print{}, slot);
}

std::string RunConfig::to_toml() const {
  RunConfig copy = *this;  // slots need a mutable config
  std::string text;
  for (const std::string& section : section_names()) {
    if (section == "precision.loss_scale" && policy.loss_scale().kind == precision::LossScale::Kind::none)
      continue;
    if (!prints_section(*this, section)) continue;
    if (!text.empty()) text += "\n";
    text += (section == "precision" ? policy.toml() : fmt::format("[{}]\n", section)) +
            section_text(copy, section);
    if (section == "optimizer") text += groups_text(optimizer.groups);
    if (section == "run") text += stages_text(run.stages);
  }
  return text;
}

std::vector<OptionInfo> options() {
  RunConfig defaults;
  std::vector<OptionInfo> all;
  for (const std::string& section : section_names()) {
    for (const Option& option : option_table()) {
      if (option.section != section) continue;
      const Slot slot = option.slot(defaults);
      std::string value = toml_text(slot);
      // No default to print: the description states it, or the key is required.
      const bool none =
          value == "\"\"" || value == "[]" || value == kNoFields || (value == "0" && option.range.min > 0);
      if (none) value.clear();
      all.push_back({section, std::string(option.key), std::visit(TypeName{option}, slot), value,
                     std::string(option.description)});
    }
    if (section == "optimizer") add_groups(all);
    if (section == "run") add_stages(all);
    if (section == "precision") add_precision(all);
    if (section != "model") continue;
    for (const model::Field& field : model_fields()) {
      const bool base = field.key == "rope_theta";  // or the name of a table of bases
      all.push_back({section, std::string(field.key),
                     base ? fmt::format("number or \"{}\"", model::kLwm) : type_name(field.kind), "",
                     std::string(field.description)});
    }
  }
  return all;
}

std::string options_help(std::size_t columns, std::string_view only) {
  constexpr std::size_t kColumn = 28, kIndent = 6;
  std::string text;
  std::string section;
  for (const OptionInfo& option : options()) {
    if (!only.empty() && option.section != only) continue;
    if (option.section != section) {
      section = option.section;
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const std::string value =
        option.default_value.empty() ? option.key : fmt::format("{} = {}", option.key, option.default_value);
    const std::string meaning = fmt::format("{} ({})", option.description, option.type);
    const std::string line = fmt::format("  {:<{}} {}", value, kColumn, meaning);
    text +=
        width_of(value) <= kColumn && width_of(line) <= columns
            ? line
            : fmt::format("  {}\n{}", value, wrapped(std::string(kIndent, ' ') + meaning, kIndent, columns));
    text += '\n';
  }
  return text;
}

}  // namespace mantissa::config
