// A short correct reasoning that solves a Knights and Knaves puzzle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/text/puzzles/kk_statement.h"

namespace mantissa::text {

/// Returns sentences that derive the unique solution `knights`, in reading order. Each sentence refutes one
/// role and then lists what follows from everything known:
///   "If Zoe is a knight, then Max is a knave, but Max's words are true. So Zoe is a knave, Max is a knight."
/// Every listed role follows from the words of one person and the roles before it. A role that needs a nested
/// refutation has it in parentheses. Steps that the refutation does not use are omitted. The first person
/// whose wrong role can be refuted comes first, so a reader or a small model knows where to start.
std::vector<std::string> kk_reasoning(const std::vector<KkStatement>& statements,
                                      const std::vector<std::string>& names, std::uint32_t knights);

}  // namespace mantissa::text
