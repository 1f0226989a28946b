// Text from a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "mantissa/api/hardware.h"
#include "mantissa/api/precision.h"

namespace mantissa::api {

/// Text to go on from, or ids.
struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;
};

struct GenerateOptions {
  std::string prompt;  // of generate() without prompts; or ids
  std::vector<std::int32_t> prompt_ids;
  std::int64_t samples = 1;  // continuations of each prompt, each with draws of its own
  std::int64_t streams =
      16;  // sequences decoded at once at most, fewer where memory is short; changes no bit
  std::int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 1;
  Precision precision;
  Hardware hardware;
};

struct Generation {
  std::vector<std::int32_t> prompt_ids, ids;
  std::string text;               // of `ids`
  std::vector<double> log_probs;  // of each id, under the untempered distribution
  double tokens_per_second = 0;
};
struct Generations {
  std::vector<Generation> all;   // prompt by prompt, and of each its samples
  double tokens_per_second = 0;  // of all together
};

/// The text of a prompt's file, byte for byte. Throws FileError where it cannot be read or is no prompt's
/// size.
std::string read_prompt(const std::filesystem::path& file);
Generation generate(const std::filesystem::path& model, const GenerateOptions& options);
/// Continuations of several prompts, decoded together. Each is what generate() gives for its prompt alone.
Generations generate(const std::filesystem::path& model, std::span<const Prompt> prompts,
                     const GenerateOptions& options);

}  // namespace mantissa::api
