// Commands that several processes run together, started by a launcher of MPI.
#pragma once

#include <string>

#include "mantissa/app/api/ranks.h"

namespace mantissa::cli {

/// Joins the others. All but the first one then print nothing. Called once, before the command.
void join_ranks();
/// Returns the processes of this command.
const api::Ranks& ranks();

/// Ends the command of this rank, with its exit code. Returns the code after every rank has ended; ends all
/// of them if others cannot. `message` is what a rank other than the first prints if it alone failed.
int leave_ranks(int code, const std::string& message = {});

}  // namespace mantissa::cli
