// A needle in a haystack: whether a model finds a number that a long text states once, by the length of the
// text and the depth of the number in it.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::eval {

struct NeedleOptions {
  std::vector<std::int64_t> lengths;  // tokens of the whole prompt
  std::vector<double> depths;         // shares of the haystack before the needle, 0 to 1
  std::int64_t trials = 1;            // numbers and cities for each cell
  std::string haystack = {};          // a text file, repeated as needed; empty: a short built-in text
  std::uint64_t seed = 1;
};

/// The trials of one length and depth.
struct NeedleCell {
  std::int64_t length = 0;
  double depth = 0;
  std::int64_t trials = 0, right = 0;
};

struct NeedleResult {
  std::vector<NeedleCell> cells;  // by length, then by depth
  bool interrupted = false;       // by a stop: only complete lengths are there
  double accuracy() const;
};

/// The prompt of one trial, and the number that answers it.
struct NeedlePrompt {
  std::vector<std::int32_t> ids;
  std::string number;
};

/// Returns the prompt of a cell: the haystack with "The special magic CITY number is: NUMBER." after the
/// sentence nearest before the depth, and a question whose answer is the number. The text depends only on the
/// arguments. Throws ConfigError if the length has no room for needle and question.
NeedlePrompt needle_prompt(const tokenizer::Tokenizer& tokenizer, const std::string& haystack,
                           std::int64_t length, double depth, std::uint64_t seed, std::int64_t trial);

/// Lets the model answer each prompt with its most likely tokens. An answer is right if its first number is
/// the needle's. Throws ConfigError if the model has no tokenizer or too few positions, or for options out of
/// range. `ranks` share the prompts, as in rollout::complete().
NeedleResult find_needles(const weights::ModelSource& source, const precision::Policy& policy,
                          const NeedleOptions& options, const runtime::Device& device,
                          const std::stop_token& stop = {}, comm::Communicator* ranks = nullptr);

}  // namespace mantissa::eval
