// A needle in a haystack: whether a model finds a number in a long text, by length and depth.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/api/ranks.h"

namespace mantissa::api {

struct NeedleOptions {
  std::vector<std::int64_t> lengths = {256, 512, 1024};  // tokens of the whole prompt
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // shares of the text before the number
  std::int64_t trials = 4;                               // prompts for each length and depth
  std::string haystack = {};  // a text file, repeated as needed; empty: a short built-in text
  std::uint64_t seed = 1;
};

struct NeedleCell {
  std::int64_t length = 0;
  double depth = 0;
  std::int64_t trials = 0, right = 0;
};

struct Needle {
  std::vector<NeedleCell> cells;  // by length, then by depth
  double accuracy = 0;            // share of right answers
  std::string page;               // HTML with a heat map
  bool interrupted = false;       // by a stop: only complete lengths are there
};

/// Measures the model (docs/cli/eval.md). Throws ConfigError, FileError, and RunStopped for non-finite
/// logits. `ranks` share the prompts: each calls it alike, and has the same result.
Needle find_needles(const Model& model, const NeedleOptions& options, const Precision& precision = {},
                    const Hardware& hardware = {}, std::stop_token stop = {}, const Ranks& ranks = Ranks());

/// Throws FileError if the page cannot be written to `file`, or would replace an input of find_needles().
void check_page(const std::filesystem::path& file, const Model& model, const NeedleOptions& options);

/// Replaces the file by the page. Throws FileError or ResourceError.
void write_page(const std::filesystem::path& file, const std::string& page);

}  // namespace mantissa::api
