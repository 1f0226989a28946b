#include "mantissa/setup/config/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/read.h"

namespace mantissa::config {

text::FieldMap read_fields(const Entry& entry) {
  const toml::table* table = entry.value->as_table();
  if (table == nullptr)
    refuse(entry, "must be a table, such as {prompt = \"query\", completion = \"response\"}");
  text::FieldMap fields;
  for (const auto& [key, node] : *table) {
    Entry field = entry;
    field.key += fmt::format(".{}", key.str());
    field.value = &node;
    field.raw.clear();
    fields.push_back({std::string(key.str()), read_texts(field)});
  }
  return fields;
}

void check_fields(const RunConfig& config, const Entries& entries, Told& told) {
  const Entry* entry = entries.find("data", "fields");
  const text::FieldMap& fields = config.data.fields;
  if (entry == nullptr || fields.empty()) return;
  const std::vector<std::string> known = text::mappable_fields(config.train.objective);
  std::string all;
  for (const text::MappedField& field : fields) {
    all +=
        fmt::format("{}{} is \"{}\"", all.empty() ? "" : ", ", field.name, fmt::join(field.from, "\" + \""));
    if (std::ranges::find(known, field.name) != known.end()) continue;
    refuse(*entry,
           fmt::format("train.objective = \"{}\" reads no field {}{} (fields: {})", config.train.objective,
                       in_quotes(field.name), did_you_mean(field.name, known), list_of(known)));
  }
  const auto has = [&](std::string_view name) {
    return std::ranges::find(fields, name, &text::MappedField::name) != fields.end();
  };
  if (has("input") && !has("instruction"))
    refuse(*entry, "input follows instruction; write {instruction = …, input = …}, or prompt = […, …]");
  told.notes.push_back("data.fields: " + all);
}

}  // namespace mantissa::config
