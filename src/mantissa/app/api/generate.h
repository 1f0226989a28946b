// Text generation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/precision.h"

namespace mantissa::api {

/// A prompt: the ids or, if there are none, the text.
struct Prompt {
  std::string text;
  std::vector<std::int32_t> ids;
  std::string where = {};  // file and line, for messages; empty: not from a file
};

/// A generated token.
struct Token {
  std::size_t prompt = 0;   // index of the prompt
  std::int64_t sample = 0;  // index of the prompt's sample
  std::int32_t id = 0;
  double log_prob = 0;  // under the distribution without temperature
  // The text that the token completes: joined, those of a sequence are the text of its ids. A character that
  // several tokens spell comes with the last of them. "" for a model without a tokenizer.
  std::string text;
};

/// A token that is about to be chosen.
struct NextToken {
  std::size_t prompt = 0;                         // index of the prompt
  std::int64_t sample = 0;                        // index of the prompt's sample
  std::span<const std::int32_t> prompt_ids, ids;  // of the prompt, and generated so far
};

/// Changes the logits [vocabulary] of the next token, in place; −∞ excludes a token. Called after the
/// repetition penalty and before temperature, top_k, top_p and min_p, as a LogitsProcessor of transformers;
/// on the thread that called generate(), for one sequence after the other. Log-probabilities are those of the
/// model's own logits. A continuation depends on the others only if the function makes it so. Throws as it
/// likes; ConfigError follows if a logit is NaN or +∞, or no token is left.
using LogitsProcessor = std::function<void(const NextToken&, std::span<double> logits)>;

struct GenerateOptions {
  std::string prompt = {};                    // for generate() with one prompt
  std::vector<std::int32_t> prompt_ids = {};  // replaces `prompt`, unless empty
  std::int64_t samples = 1;                   // continuations of each prompt, with independent draws
  // largest number of sequences decoded at once, reduced if memory is short; changes no bit
  std::int64_t streams = 16;
  std::int64_t max_new_tokens = 128;
  double temperature = 0;  // 0: the most likely token
  std::int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;                    // smallest probability, as a share of the largest one
  double repetition_penalty = 1;       // of the ids of the prompt and those generated
  std::vector<std::string> stop = {};  // a text ends before the first of these strings
  std::int64_t best = 0;  // keep only this many samples of each prompt, those with the largest total_log_prob
  std::uint64_t seed = 1;
  /// A file of states to continue from: the prompts follow its sequence. Empty: none.
  std::filesystem::path state = {};
  /// The file to which the states after the sequence are written, of one prompt and one sample; an earlier
  /// file of states is replaced. Empty: none.
  std::filesystem::path save_state = {};
  bool overwrite = false;  // save_state may replace any file
  /// Called for each token, on the thread that called generate(). Returns false to end the token's sequence.
  /// A token's text begins with what earlier ones left of an incomplete character, and lacks its own; the
  /// rest comes with the last token, but not with one at which the callback ends the sequence. An exception
  /// propagates to the caller.
  std::function<bool(const Token&)> on_token = {};
  LogitsProcessor logits_processor = {};
  Precision precision = {};
  Hardware hardware = {};
};

struct Generation {
  std::vector<std::int32_t> prompt_ids, ids;
  std::string text;               // of `ids`
  std::vector<double> log_probs;  // of each id, under the distribution without temperature
  double total_log_prob = 0;      // their sum
  std::int64_t sample = 0;        // number of the sample, from 0
  std::size_t prompt = 0;         // index of the prompt
  bool stopped = false;           // at a stop string: the last ids contain it, and the text does not
  double tokens_per_second = 0;
};
struct Generations {
  // in the order of prompts, then samples; with `best` by decreasing total_log_prob
  std::vector<Generation> all;
  double tokens_per_second = 0;  // of all sequences together
  bool interrupted = false;      // by a stop: unfinished sequences contain their completed tokens
};

/// Returns the prompts of a file: JSON or CSV with the prompt in the string field `prompt` or
/// `text`, or plain lines if the name ends with .txt. Throws FileError with the line.
std::vector<Prompt> read_prompts(const std::filesystem::path& file);
/// Returns the contents of a prompt file, byte for byte. Throws FileError if it cannot be read or is larger
/// than 16 MiB.
std::string read_prompt(const std::filesystem::path& file);
/// Continues the prompt of the options with one sample. Throws ConfigError, FileError, and RunStopped for
/// non-finite logits, with the first such value. After a stop, returns the completed tokens.
Generation generate(const Model& model, const GenerateOptions& options, std::stop_token stop = {});
/// Continues several prompts together. Each continuation equals that of the prompt alone.
Generations generate(const Model& model, std::span<const Prompt> prompts, const GenerateOptions& options,
                     std::stop_token stop = {});

}  // namespace mantissa::api
