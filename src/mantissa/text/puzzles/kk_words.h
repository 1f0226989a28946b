// The text of a Knights and Knaves puzzle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/text/puzzles/kk.h"

namespace mantissa::text {

/// Fills in the quiz, the prompt, the reasoning and the answer of a puzzle with names, statements and
/// solution. `draw(n)` returns a random integer in [0, n), which selects among equivalent phrases.
void put_into_words(KkPuzzle& puzzle, KkStyle style, const std::function<int(int)>& draw);

/// Returns "Zoey is a knight", for example, for person i.
std::string role_words(const KkPuzzle& puzzle, std::size_t i);

}  // namespace mantissa::text
