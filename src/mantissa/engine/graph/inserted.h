// Steps that plans insert between the ops of a graph.
#pragma once

#include <string_view>

namespace mantissa::graph {

/// Returns what the step called `op` does for the ops around it, such as "rounds an operand to …", or "" if
/// plans do not insert such a step. Rules do not match inserted steps: the rule of an op decides about its
/// roundings.
std::string_view inserted_step(std::string_view op);

}  // namespace mantissa::graph
