// Faults of the data: rows without labels.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/lab/audit/run.h"
#include "mantissa/setup/data/rows.h"

namespace mantissa::lab {

/// Returns the findings of the data of the audit's steps up to `last`: no labels, or rows without
/// any, which the data may have left out.
std::vector<Finding> data_findings(const AuditSource& source, std::int64_t last);

/// Returns the audit of a run that cannot start, because no row of its data has a label. Its cure is tested
/// by reading the data again.
Audit audit_without_labels(const config::RunConfig& config, const model::ModelConfig& model,
                           const data::NoLabels& error, const AuditOptions& options);

}  // namespace mantissa::lab
