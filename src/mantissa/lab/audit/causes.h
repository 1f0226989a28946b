// Causes and cures of findings: faults of the data, cures that are tried by replay, and what to tell first.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/lab/audit/run.h"

namespace mantissa::lab {

/// Returns the findings of the data of the audit's steps up to `last`: no labels, or rows without any.
std::vector<Finding> data_findings(const AuditSource& source, std::int64_t last);

/// Repeats the steps up to a finding with its cure, for the first findings, and marks the cures under which
/// it is gone. A non-finite value that remains in f32 has another cause than the precision: its finding tells
/// so, with a lower learning rate as the cure.
void try_cures(Audit& audit, const AuditSource& source, const std::stop_token& stop);

/// Returns one paragraph about all findings.
std::string verdict_of(const Audit& audit);

}  // namespace mantissa::lab
