// The names that fields of rows have in files (data.fields).
#pragma once

#include "mantissa/setup/config/entries.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::config {

/// Reads the table of an entry, in the order of its keys.
text::FieldMap read_fields(const Entry& entry);

/// Throws ConfigError for a field of data.fields that the rows of the objective are not read by. Else notes
/// what the fields are.
void check_fields(const RunConfig& config, const Entries& entries, Told& told);

}  // namespace mantissa::config
