// A Knights-and-Knaves puzzle in words.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mantissa/text/kk.h"

namespace mantissa::text {

/// Fills the quiz, the prompt, the reasoning and the answer of a puzzle that has names, statements and
/// solution. `draw(n)` gives an integer in [0, n): it chooses among ways to say the same.
void put_into_words(KkPuzzle& puzzle, KkStyle style, const std::function<int(int)>& draw);

/// "Zoey is a knight" of person i.
std::string role_words(const KkPuzzle& puzzle, std::size_t i);

}  // namespace mantissa::text
