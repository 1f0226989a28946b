// The sections of an audit's page, in their order.
#pragma once

#include <string>
#include <vector>

#include "mantissa/lab/audit/audit.h"
#include "mantissa/report/page.h"

namespace mantissa::lab {

report::Section findings_section(const Audit& audit);
/// The first inf or NaN. Only for an audit that has one, or that stopped.
report::Section stop_section(const Audit& audit);
/// Loss, loss scale and gradient norm over the steps.
report::Section course_section(const Audit& audit);
/// Maps of layers × steps: overflow, underflow, rounding.
report::Section range_section(const Audit& audit);
report::Section rounding_section(const Audit& audit);
/// Lost updates: maps, and a table of parameters.
report::Section updates_section(const Audit& audit);
/// Tokens with other experts than in f32. Only for an audit that has routers.
report::Section routers_section(const Audit& audit);
report::Section histograms_section(const Audit& audit);
report::Section plan_section(const Audit& audit);
report::Section method_section(const Audit& audit);

/// Returns how bad a finding is.
report::Status status_of(const Finding& finding);

/// Returns the kind of a finding in words: "lost updates".
std::string kind_words(const Finding& finding);

/// Returns formats in a cell, each on the colour of its width: "bf16→f32".
std::string formats_html(const std::string& formats);

/// Returns the scopes of values and parameters in the order of the model.
std::vector<std::string> scopes_of(const Audit& audit);

/// Returns "data rows 3, 17", shortened after eight.
std::string rows_text(const std::vector<std::int64_t>& rows);

}  // namespace mantissa::lab
