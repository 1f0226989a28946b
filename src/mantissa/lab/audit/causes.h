// Cures of findings, which are tried by replay, and what to tell first.
#pragma once

#include <stop_token>

#include "mantissa/lab/audit/run.h"
#include "mantissa/lab/audit/trials.h"

namespace mantissa::lab {

/// Repeats the audit's steps with cures, for the first findings, and keeps those under which no finding of
/// the kind is left. A cure that does not work is removed, and the finding tells it. What remains in f32 has
/// another cause than the precision: its finding tells so, with a lower learning rate as the cure. The first
/// rank calls it; the others of `ranks`, which may be null, follow_trials().
void try_cures(Audit& audit, const AuditSource& source, const CureTrials& options,
               const std::stop_token& stop, comm::Communicator* ranks);

}  // namespace mantissa::lab
