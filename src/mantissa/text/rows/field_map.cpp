#include "mantissa/text/rows/field_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::text {
namespace {

/// Fields of which a row has one, in the order of their names.
enum class Group { conversation, prompt, completion, ids, none };

struct Field {
  std::string_view name, objectives;
  Group group = Group::none;
  bool optional = false;  // a row need not have it
};

constexpr std::string_view kAnswers = "sft rl kto", kPairs = "dpo reward kto", kAll = "sft rl dpo reward kto";

constexpr Field kFields[] = {
    {"text", "pretrain"},
    {"messages", kAnswers, Group::conversation},
    {"conversations", kAnswers, Group::conversation},
    {"conversation", kAnswers, Group::conversation},
    {"prompt", kAll, Group::prompt},
    {"instruction", kAll, Group::prompt},
    {"question", kAll, Group::prompt},
    {"completion", kAnswers, Group::completion},
    {"response", kAnswers, Group::completion},
    {"output", kAnswers, Group::completion},
    {"answer", kAnswers, Group::completion},
    {"chosen", kPairs},
    {"rejected", kPairs},
    {"input_ids", "sft", Group::ids},
    {"labels", "sft", Group::none, true},
    {"input", kAll, Group::none, true},
    {"system", kAll, Group::none, true},
    {"tools", kAll, Group::none, true},
    {"margin", "dpo reward", Group::none, true},
    {"label", "kto", Group::none, true},
};

const Field* find_field(std::string_view name) {
  const auto* const found = std::ranges::find(kFields, name, &Field::name);
  return found == std::end(kFields) ? nullptr : found;
}

/// Returns true if rows with `read` would not be read by `mapped`.
bool hides(const Field& read, const Field& mapped) {
  if (read.group == Group::none || mapped.group == Group::none) return false;
  if (read.group == mapped.group) return true;
  return mapped.group == Group::ids ||
         (mapped.group != Group::conversation && read.group == Group::conversation);
}

/// Returns the names of fields that would be read in place of those of `map`.
std::vector<std::string> hidden_by(const FieldMap& map) {
  std::vector<std::string> names;
  for (const Field& field : kFields) {
    const bool hidden = std::ranges::any_of(map, [&](const MappedField& mapped) {
      const Field* to = find_field(mapped.name);
      return to != nullptr && hides(field, *to);
    });
    if (hidden) names.emplace_back(field.name);
  }
  return names;
}

/// Returns the names of a row's first fields.
template <class Json>
std::vector<std::string> names_in(const Json& row) {
  constexpr std::size_t kMost = 12;
  std::vector<std::string> names;
  for (const auto& item : row.items()) {
    if (names.size() == kMost) return names;
    names.push_back(item.key());
  }
  return names;
}

/// Returns one value, or the text of several. Null values count as absent.
template <class Json>
Json joined(const MappedField& field, const std::vector<const Json*>& values, const std::string& where) {
  if (values.size() == 1) return *values.front();
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]->is_null()) continue;
    if (!values[i]->is_string()) {
      throw FileError("{}: \"{}\" is of type {}; it is joined to \"{}\", so it must be a string", where,
                      field.from[i], values[i]->type_name(), field.name);
    }
    const auto& part = values[i]->template get_ref<const std::string&>();
    if (!part.empty()) text += (text.empty() ? "" : "\n\n") + part;
  }
  return text;
}

}  // namespace

std::vector<std::string> mappable_fields(std::string_view objective) {
  std::vector<std::string> names;
  for (const Field& field : kFields) {
    const std::vector<std::string_view> of = split_words(field.objectives, " ");
    if (std::ranges::find(of, objective) != of.end()) names.emplace_back(field.name);
  }
  return names;
}

FieldMap read_field_map(std::string_view option, std::string_view text, std::string_view objectives) {
  std::vector<std::string> known;
  for (const std::string_view objective : split_words(objectives, " ")) {
    for (std::string& name : mappable_fields(objective)) {
      if (std::ranges::find(known, name) == known.end()) known.push_back(std::move(name));
    }
  }
  FieldMap map;
  for (const std::string_view entry : split_words(text, ",")) {
    const std::size_t equals = entry.find('=');
    MappedField field{std::string(trimmed(entry.substr(0, equals))), {}};
    const std::string_view from = equals == entry.npos ? "" : entry.substr(equals + 1);
    for (const std::string_view name : split_words(from, "+")) field.from.emplace_back(trimmed(name));
    const auto pluses = static_cast<std::size_t>(std::ranges::count(from, '+'));
    if (field.name.empty() || field.from.size() != pluses + 1 ||
        std::ranges::find(field.from, "") != field.from.end())
      throw ConfigError(
          fmt::format("{}: {}: expected NAME=FIELD, or NAME=FIELD+FIELD for texts to join. Fix: "
                      "write it like {} text=body, or {} text=title+body",
                      option, in_quotes(entry), option, option));
    if (std::ranges::find(known, field.name) == known.end())
      throw ConfigError(fmt::format("{}: unknown field {}{} (known fields: {})", option,
                                    in_quotes(field.name), did_you_mean(field.name, known), list_of(known)));
    if (std::ranges::find(map, field.name, &MappedField::name) != map.end())
      throw ConfigError(fmt::format("{}: {} is given twice. Fix: join fields as in {}=title+body", option,
                                    field.name, field.name));
    map.push_back(std::move(field));
  }
  return map;
}

template <class Json>
void FieldMapper::rename(Json& row, const std::string& where) {
  std::vector<std::pair<std::string, Json>> mapped;
  for (std::size_t f = 0; f < map_.size(); ++f) {
    const MappedField& field = map_[f];
    std::vector<const Json*> values;
    for (const std::string& name : field.from) {
      const auto found = row.find(name);
      if (found != row.end())
        values.push_back(&*found);
      else if (const Field* known = find_field(field.name); known == nullptr || !known->optional) {
        const std::vector<std::string> names = names_in(row);
        throw FileError("{}: no field \"{}\", the source of \"{}\". The row's fields: {}{}", where, name,
                        field.name, fmt::join(names, ", "), did_you_mean(name, names));
      }
    }
    if (values.size() < field.from.size()) continue;
    found_[f] = true;
    mapped.emplace_back(field.name, joined(field, values, where));
  }
  for (const std::string& name : hidden_by(map_)) row.erase(name);
  for (auto& [name, value] : mapped) row[name] = std::move(value);
}

void FieldMapper::apply(nlohmann::json& row, const std::string& where) {
  if (!map_.empty() && row.is_object()) rename(row, where);
}

void FieldMapper::apply(nlohmann::ordered_json& row, const std::string& where) {
  if (!map_.empty() && row.is_object()) rename(row, where);
}

void FieldMapper::check_found(const std::string& path) const {
  for (std::size_t f = 0; f < map_.size(); ++f) {
    if (found_[f]) continue;
    throw FileError("{}: no row has the field \"{}\", the source of \"{}\". Fix: correct the name", path,
                    fmt::join(map_[f].from, "\", \""), map_[f].name);
  }
}

}  // namespace mantissa::text
