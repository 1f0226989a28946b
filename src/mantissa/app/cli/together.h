// Commands that several processes run together, started by a launcher of MPI.
#pragma once

#include <string>

#include "mantissa/app/api/ranks.h"

namespace mantissa::cli {

/// Joins the others. All but the first one then print nothing. Called once, before the command.
void join_ranks();
/// Returns the processes of this command.
const api::Ranks& ranks();

/// Ends the command of this rank, with its exit code. `message` is that of its error, if it is not printed
/// yet; `lost`: the error is that another rank ended. It is printed if no other rank says why. Returns the
/// code after every rank has ended; ends all of them if others cannot.
int leave_ranks(int code, const std::string& message, bool lost);

}  // namespace mantissa::cli
