// The rule that scores an answer to a Knights-and-Knaves puzzle (docs/data.md), as Logic-RL does.
#pragma once

#include <string_view>

namespace mantissa::text {

struct KkReward {
  double format =
      -1;  // +1: each of <think> </think> <answer> </answer> exactly once and in this order; else −1
  double answer = -2;  // +2 all roles right, −1.5 some wrong, −2 unreadable, missing, or the format is bad
  double total() const { return format + answer; }
};

/// Scores what follows the first "Assistant:" (or, where there is none, the first "<|im_start|>assistant").
/// Without a marker the format is judged on the whole text and the answer counts −2. Markers and tags are
/// literal.
///
/// The answer is the body of <answer>: the number of "knight" plus "knave" in it (any case, also inside
/// words) must equal the number of names, and the first "NAME is a (knight|knave)" of each name, in whole
/// words and any case, gives its role. Names are the first words of the lines of `solution_text_format` that
/// a role follows; two lines with one name count once.
///
/// Words and white space are as in Python's regular expressions over text: a word is letters and numbers of
/// any script and '_' (is_word), and any white space of Unicode may stand between words (is_space). Case is
/// folded where that gives an ASCII letter; other letters match only themselves. Bytes that are not UTF-8 end
/// a word.
KkReward kk_reward(std::string_view response, std::string_view solution_text_format);

}  // namespace mantissa::text
