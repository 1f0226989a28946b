// The names that the fields of rows have in files (data.fields, --fields).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::text {

/// A field of rows, and the fields of a file that it is made of: one, or several texts that a blank line
/// joins.
struct MappedField {
  std::string name;
  std::vector<std::string> from;
  friend bool operator==(const MappedField&, const MappedField&) = default;
};
using FieldMap = std::vector<MappedField>;

/// Returns the names that a map may give: those that the rows of `objective` (train.objective) are read by.
std::vector<std::string> mappable_fields(std::string_view objective);

/// Reads a map from the command line: "NAME=FIELD,NAME=FIELD+FIELD". `option` is named in messages. Throws
/// ConfigError for another form, and for a name that rows of none of the `objectives`, which blanks separate,
/// are read by.
FieldMap read_field_map(std::string_view option, std::string_view text, std::string_view objectives);

/// Gives the rows of one file the fields of a map.
class FieldMapper {
 public:
  explicit FieldMapper(FieldMap map) : map_(std::move(map)), found_(map_.size()) {}

  bool any() const { return !map_.empty(); }
  /// Replaces the fields of a row by those of the map. Other fields stay, but not those that would be read in
  /// place of mapped ones: other names of the same field, and for a mapped prompt or completion also a
  /// conversation. Null stays null; of several fields, empty and null ones are left out. `where` is
  /// the row's place. Throws FileError if the row lacks a field, unless it is one of a field that a row need
  /// not have, and if a field of several is not a text.
  void apply(nlohmann::json& row, const std::string& where);
  void apply(nlohmann::ordered_json& row, const std::string& where);
  /// Throws FileError for a field of the map that no row of `path` has. Call it at the end of a file that has
  /// rows.
  void check_found(const std::string& path) const;

 private:
  template <class Json>
  void rename(Json& row, const std::string& where);

  FieldMap map_;
  std::vector<bool> found_;
};

}  // namespace mantissa::text
