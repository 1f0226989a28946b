// How the files of a source are read.
#pragma once

#include <string>
#include <utility>

#include "mantissa/text/rows/field_map.h"
#include "mantissa/text/rows/token_file.h"

namespace mantissa::text {

/// The name of a format, the type of ids without a header, and the names of the fields of rows.
struct FileFormat {
  FileFormat(const char* named = "auto") : name(named) {}         // NOLINT(google-explicit-constructor)
  FileFormat(std::string named, IdType type = IdType::automatic,  // NOLINT(google-explicit-constructor)
             FieldMap map = {})
      : name(std::move(named)), ids(type), fields(std::move(map)) {}
  std::string name;  // "auto", or that of a kind (file_kinds.h)
  IdType ids = IdType::automatic;
  FieldMap fields;
};

}  // namespace mantissa::text
