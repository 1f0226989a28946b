// A short true reasoning that solves a Knights-and-Knaves puzzle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/text/kk_statement.h"

namespace mantissa::text {

/// Sentences that lead to the only solution `knights`, in the order they are to be read. Each refutes one
/// role, and then tells what follows from all that is known:
///   "If Zoe is a knight, then Max is a knave, but Max's words are true. So Zoe is a knave, Max is a knight."
/// Every role that is told follows from the words of one person and the roles before it; a role that needs a
/// refutation of its own has it behind it in parentheses. Steps that the refutation does not use are left
/// out. The first person whose wrong role can be refuted is taken first: a reader, and a small model, know
/// where to begin.
std::vector<std::string> kk_reasoning(const std::vector<KkStatement>& statements,
                                      const std::vector<std::string>& names, std::uint32_t knights);

}  // namespace mantissa::text
