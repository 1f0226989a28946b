// Text from a model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/api/hardware.h"
#include "mantissa/api/model.h"
#include "mantissa/api/precision.h"

namespace mantissa::api {

/// Text to go on from, or ids.
struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;
};

/// A token as it is generated.
struct Token {
  std::size_t prompt = 0;   // place of the prompt
  std::int64_t sample = 0;  // of its samples
  std::int32_t id = 0;
  double log_prob = 0;  // under the untempered distribution
  std::string text;  // its bytes, which may be a part of a character; "" where the model has no text, and of
                     // the id that ends one
};

struct GenerateOptions {
  std::string prompt = {};  // of generate() without prompts; or ids
  std::vector<std::int32_t> prompt_ids = {};
  std::int64_t samples = 1;  // continuations of each prompt, each with draws of its own
  std::int64_t streams =
      16;  // sequences decoded at once at most, fewer where memory is short; changes no bit
  std::int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;
  double top_p = 1;
  std::uint64_t seed = 1;
  /// Called for each token, on the thread that called generate(); false ends the token's sequence. An
  /// exception reaches the caller.
  std::function<bool(const Token&)> on_token = {};
  Precision precision = {};
  Hardware hardware = {};
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
  bool interrupted = false;      // by the stop: sequences hold the tokens that they had
};

/// Returns the text of a prompt's file, byte for byte. Throws FileError where it cannot be read or is larger
/// than 16 MiB.
std::string read_prompt(const std::filesystem::path& file);
/// Continues one prompt, that of the options, with one sample. Throws ConfigError, FileError; RunStopped
/// where logits are not finite, naming the first such value.
Generation generate(const Model& model, const GenerateOptions& options, std::stop_token stop = {});
/// Continues several prompts, decoded together. Each continuation is what generate() gives for its prompt
/// alone.
Generations generate(const Model& model, std::span<const Prompt> prompts, const GenerateOptions& options,
                     std::stop_token stop = {});

}  // namespace mantissa::api
