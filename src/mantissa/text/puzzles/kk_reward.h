// The rule that scores an answer to a Knights and Knaves puzzle, as Logic-RL does (docs/data.md).
#pragma once

#include <string_view>

namespace mantissa::text {

struct KkReward {
  double format = -1;  // +1: each of <think> </think> <answer> </answer> exactly once, in this order; else −1
  double answer = -2;  // +2 all roles right, −1.5 some wrong, −2 unreadable or missing, or a bad format
  double total() const { return format + answer; }
};

/// Scores the text after the first "Assistant:", or without one, after the first "<|im_start|>assistant".
/// Without either marker the format is judged on the whole text and the answer scores −2. Markers and tags
/// are literal.
///
/// The answer is the body of <answer>. The number of "knight" plus "knave" in it (any letter case, also
/// inside words) must equal the number of names. The first "NAME is a (knight|knave)" of each name, in whole
/// words and any letter case, gives its role. Names are the first words, of letters only, of the lines of
/// `solution_text_format` that a role follows; two lines with one name count once.
///
/// Words, white space and letter case follow Python's regular expressions over text: a word consists of
/// letters and numbers of any script and '_' (is_word), any Unicode white space may separate words
/// (is_space), and letters of any script match in either case (caseless). Bytes that are not UTF-8 end a
/// word.
KkReward kk_reward(std::string_view response, std::string_view solution_text_format);

}  // namespace mantissa::text
