#include "mantissa/text/rows/labelled_row.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/text/rows/preference_row.h"
#include "mantissa/text/rows/row_fields.h"

namespace mantissa::text {
namespace {

/// Returns the label: true or false, 1 or 0, also as the texts of CSV.
bool label_of(const nlohmann::ordered_json& value, const std::string& where) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer() && (value == 0 || value == 1)) return value == 1;
  if (value.is_string()) {
    const std::string_view text = trimmed(value.get_ref<const std::string&>());
    if (text == "true" || text == "True" || text == "1") return true;
    if (text == "false" || text == "False" || text == "0") return false;
  }
  throw FileError("{}: \"label\" is {}; expected true for a desirable answer, or false", where, value.dump());
}

}  // namespace

std::vector<LabelledRow> read_labelled(const nlohmann::ordered_json& row, const std::string& where) {
  const FoundField label = first_of(row, std::array{"label"});
  if (label) {
    const bool desirable = label_of(*label.value, where);
    return {{read_conversation(row, where), desirable}};
  }
  if (first_of(row, std::array{"chosen", "rejected"})) {
    PreferenceRow pair = read_preference(row, where);
    return {{std::move(pair.chosen.row), true}, {std::move(pair.rejected.row), false}};
  }
  throw FileError(
      "{}: no \"label\"; a row has \"prompt\", \"completion\" and \"label\", true or false, or it is a pair with "
      "\"chosen\" and \"rejected\". Its fields: {}{}",
      where, fmt::join(field_names(row), ", "), kFieldsCure);
}

}  // namespace mantissa::text
