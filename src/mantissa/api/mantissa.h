// The public face of the library: configs, plans, training, evaluation, generation. Nothing here exits the
// process, prints, or reads an environment variable: data may come from memory, events go to callbacks, a
// stop token stops a run. Mistakes of the user are thrown as mantissa::Error (api/error.h) with a message
// that says what is wrong, where, and how to mend it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::api {

/// Where a run executes. Neither changes a bit of any result.
struct Hardware {
  int threads = 0;   // 0: all cores
  std::string simd;  // "avx2", "avx512", "neon"; empty: the best there is
  std::string device = "cpu";
};

/// A precision policy as it is given on a command line: a preset or line that replaces the config's, rules on
/// top of it, and a DeepSpeed file, whose policy counts where none is given here.
struct Precision {
  std::optional<std::string> policy;  // "bf16-mixed", "params=f32 compute=bf16 …"
  std::vector<std::string> rules;     // "lm_head: compute=f32"
  std::filesystem::path deepspeed{};  // empty: none
};

/// What a policy is called here, and what there is to say of how it was read.
struct Reading {
  std::string policy;                 // "bf16-mixed: params=f32 compute=bf16 …"
  std::vector<std::string> notes;     // how it was read
  std::vector<std::string> warnings;  // what differs from what was written
};
/// The policy that a model directory is read under; `32-true` where none is given. Rules of the update, and
/// unless `backward` of the backward pass, are left out, which is a note. Throws ConfigError, FileError.
Reading read_precision(const Precision& precision, bool backward = false);

/// A run's config: checked, resolved, immutable (docs/cli.md).
class Config {
 public:
  /// Reads a TOML file; `overrides` are "section.key=value", `precision` replaces its policy. What a
  /// DeepSpeed file says wins over the TOML, overrides and the policy over both. Throws FileError,
  /// ConfigError.
  static Config load(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                     const Precision& precision = {});
  /// The same from text; relative paths are relative to the current directory.
  static Config parse(std::string_view text, std::span<const std::string> overrides = {},
                      const Precision& precision = {});

  /// Every key with its value; loads back to an equal config.
  std::string toml() const;
  std::filesystem::path out() const;
  /// The canonical name and line of the policy.
  std::string policy() const;
  /// What a user should be told, once, of how the config was read; train() and explain() do.
  const std::vector<std::string>& notes() const;
  const std::vector<std::string>& warnings() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }
  explicit Config(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

/// One op of a plan, with the formats of its use and the rule that decided them.
struct PlanOp {
  std::string scope, op, pass;
  std::string stored, multiplied, accumulated, output;
  std::string decided_by, kernel;
  double flops = 0, bytes = 0;
  std::string rounded = {};  // what the result is rounded to before the op adds it to a sum; "" elsewhere
};

/// What a run would be on another machine, by its stated rates.
struct TargetPlan {
  std::string name;
  double seconds_per_step = 0;  // of a model's plan: per token; 0 where the machine lacks a format
  std::size_t predicted_peak_bytes = 0;
  std::int64_t largest_micro_batch_size = 0;  // of the config's batch; 0 where not one sequence fits
  std::int64_t sequences_that_fit = 0;        // at once, whatever the batch is
  std::vector<std::string> warnings;          // formats that it lacks
};

/// What a run will do, before it runs.
struct Plan {
  std::string policy;  // name: line
  std::vector<PlanOp> ops;
  std::size_t predicted_peak_bytes = 0;
  double seconds_per_step = 0;
  std::int64_t largest_micro_batch_size = 0;
  std::vector<TargetPlan> targets;
  std::vector<std::string> warnings;
  std::vector<std::string> notes;  // how the config was read
  std::string refusal;             // why train() would refuse the rules; "" where it would not
  std::string text;                // for people
  std::string json;                // for programs (docs/cli.md, "explain --json")
};

/// `targets`: other machines, by name or a FILE.toml (docs/cli.md, "Targets").
Plan explain(const Config& config, const Hardware& hardware = {}, std::span<const std::string> targets = {});
/// The plan of generating from a model directory; of training it where `precision` has a DeepSpeed file.
Plan explain_model(const std::filesystem::path& model, const Precision& precision,
                   const Hardware& hardware = {}, std::span<const std::string> targets = {});

/// One optimizer step as it was.
struct Step {
  std::int64_t step = 0;
  std::int64_t steps = 0;  // of the whole run
  double loss = 0;
  std::int64_t tokens = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  std::optional<double> loss_scale;  // that was used in this step; nothing under a policy without one
  bool skipped = false;              // the gradients overflowed: the step changed nothing but the scale
  std::string overflow;              // of a skipped step: op, value, format and data rows
  double tokens_per_second = 0;
  double peak_share = 0;  // of the machine's measured FMA peak
  double seconds = 0;
  double seconds_left = 0;
};

/// What a run tells while it runs. All are optional; they are called on the thread that called train().
struct Events {
  std::function<void(const Plan&)> on_plan;
  std::function<void(const Step&)> on_step;
  std::function<void(std::int64_t step, double loss)> on_validation;
  std::function<void(std::int64_t step, const std::filesystem::path&)> on_state;
  std::function<void(const std::string&)> on_note;  // things a user should be told once
  std::function<void(const Warning&)> on_warning;   // what goes wrong in this run, once, with its cures
};

struct TrainOptions {
  std::filesystem::path out;  // empty: the config's run.out
  bool overwrite = false;     // a run directory that holds a state is never written over unasked
  std::optional<std::int64_t>
      resume;                        // a step, or 0 for the newest state (from the start where there is none)
  std::vector<std::int32_t> tokens;  // training data from memory instead of the config's source
  Hardware hardware;
};

struct Summary {
  std::int64_t steps = 0;
  std::int64_t steps_here = 0;  // of them, that this call ran; 0 where the run was complete before
  double first_loss = 0;        // of the first step this call ran
  double final_loss = 0;
  std::optional<double> validation_loss;
  std::int64_t tokens = 0;       // since the start of the run
  std::int64_t tokens_here = 0;  // of them, in this call
  double seconds = 0;            // of this call
  std::size_t predicted_peak_bytes = 0, measured_peak_bytes = 0;
  std::int64_t skipped = 0;
  std::string policy;
  std::string weights_xxh64;
  std::filesystem::path model;  // the checkpoint, in Hugging Face's layout
  std::string model_format;     // of its weights: "f32"
  bool interrupted = false;     // the stop token was used: the state is saved, run with `resume` to go on
};

/// Trains, and leaves a run directory as docs/cli.md describes it. Throws ConfigError, FileError,
/// ResourceError before the first step; RunStopped where the run cannot go on, or ends with a loss that is
/// not finite: the states stay, and no model is written.
Summary train(const Config& config, const TrainOptions& options = {}, const Events& events = {},
              std::stop_token stop = {});

struct Evaluation {
  std::int64_t tokens = 0;
  double loss = 0;  // nats per token
  double perplexity = 0;
  double bits_per_byte = 0;  // 0 where the tokenizer is not of bytes
  std::int64_t puzzles = 0;  // Knights-and-Knaves rows that were answered
  double well_formed = 0;    // share with the right form
  double accuracy = 0;       // share answered right
};

/// `data`: files, or {"kk"} for held-out puzzles, of which `puzzles` are answered too.
Evaluation evaluate(const std::filesystem::path& model, const std::vector<std::string>& data,
                    const std::string& format, std::int64_t sequence_length, std::int64_t puzzles,
                    const Precision& precision, const Hardware& hardware = {});
/// The held-out rows of a run's config, by the model that the run wrote.
Evaluation evaluate(const Config& config, std::int64_t puzzles, const Hardware& hardware = {});

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

struct TraceOptions {
  std::filesystem::path model, tokens, out;
  std::vector<std::vector<std::int32_t>> ids, labels;  // rows from memory, where `tokens` is empty
  bool grads = false;
  std::string values;
  /// What is handed out in the format that it was rounded to; all else in f32 (f64 under `64-true`). Globs
  /// over the names of tensors: "logits", "grad.*" (docs/library.md, "Edges").
  std::vector<std::string> unconverted;
  Precision precision;
  Hardware hardware;
};

/// A tensor in memory: row-major, little-endian.
struct Tensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", as safetensors calls them
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

struct Trace {
  double loss = 0;              // mean over the predicted tokens
  std::int64_t predicted = 0;   // labels that are not masked
  std::vector<Tensor> tensors;  // where `out` is empty
};
/// Writes a trace file (docs/cli.md, "trace"); where `out` is empty its tensors are handed back. Throws
/// ConfigError for names that nothing has.
Trace trace(const TraceOptions& options);

struct PuzzleOptions {
  std::int64_t count = 10;
  int people_min = 2, people_max = 8;
  std::uint64_t seed = 1;
  bool held_out = false;
  std::string style = "short";  // or "logic-rl"
};
/// Knights-and-Knaves puzzles, one JSON object each.
std::vector<std::string> puzzles(const PuzzleOptions& options);

/// Cores, instruction sets, memory, formats with their measured cost, and the preset this machine should use:
/// text and JSON.
struct Doctor {
  std::string text, json;
};
Doctor doctor(const Hardware& hardware = {});

struct Inspection {
  std::string text, json;
};
/// Tensors of a safetensors file, a model directory, or a run: shapes, dtypes, ranges, where they come from,
/// and what a cast to each narrower format would lose.
Inspection inspect(const std::filesystem::path& path, const Hardware& hardware = {});

struct ConvertOptions {
  std::filesystem::path in, out;
  std::string dtype;                 // "bf16", "torch.float16", …; empty: every tensor stays as it is
  std::string format = "hf";         // layout of what is written; the only one of this version
  std::string rounding = "nearest";  // stochastic, toward-zero
  bool saturate = false;             // values beyond the range become the largest of the format
  bool allow_overflow = false;       // no warning where they become infinities (e4m3: nans) instead
  bool overwrite = false;            // a file or a model that stands at `out` is replaced
  std::uint64_t seed = 1;            // of stochastic rounding
  std::vector<std::string> data;  // files, or {"kk"}: the model's loss before and after, and the divergence
  std::string data_format = "auto";
  std::int64_t sequence_length = 256;
  Precision precision;  // in which both models are run over the data
  Hardware hardware;
};

/// What a conversion did to one tensor, or to all.
struct ConvertedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string from, to;  // "F32", "BF16", as safetensors calls them
  std::uint64_t count = 0;
  double max_error = 0;  // largest |after − before|
  double rms_error = 0;
  double relative_error = 0;      // rms_error as a share of the values' root mean square
  double max_relative_error = 0;  // largest |after − before| / |before|
  std::uint64_t overflows = 0;    // beyond the range of the new format
  std::uint64_t vanished = 0;     // not zero before, zero after
  std::uint64_t nonfinite = 0;    // inf or nan before
};

/// Two models over the same tokens.
struct ConversionEffect {
  std::int64_t tokens = 0;
  double loss = 0, converted_loss = 0;  // nats per token
  double kl = 0;      // mean over positions of the divergence of the converted model's distribution from the
                      // original's, Σ p·(log p − log q), nats
  double max_kl = 0;  // at one position
};

struct Conversion {
  std::vector<ConvertedTensor> tensors;  // in their order in the files
  ConvertedTensor total;
  std::optional<ConversionEffect> effect;    // where there are data
  std::vector<std::string> notes, warnings;  // a warning: which values became inf or nan
  bool interrupted = false;  // the stop token was used: nothing was written, or `out` is not compared
  std::string text;          // for people
  std::string json;          // for programs (docs/cli.md, "convert")
};

/// Rewrites a safetensors file, a model directory, or the model or newest state of a run. `out` appears whole
/// or not at all. Throws ConfigError for options that name nothing, FileError where `out` may not be written.
Conversion convert(const ConvertOptions& options, std::stop_token stop = {});

/// A loss scaler's settings, in DeepSpeed's words; `torch`: PyTorch's rule, which reads the first two only.
struct LossScaleOptions {
  bool torch = false;
  int initial_scale_power = 16;
  std::optional<std::int64_t> window;  // 1000; 2000 for PyTorch's
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_scale = 1;
  bool raise_at_min = true;
  double constant = 0;            // above 0: the scale never moves
  std::string overflows;          // "0110": a 1 for every step that overflows
  std::filesystem::path metrics;  // or a run's metrics.jsonl
};
struct LossScaleReplay {
  std::vector<double> scales;  // after every step
  std::vector<std::int64_t> hysteresis;
  std::string error;  // where the rule would stop the run, why; "" where it does not
};
LossScaleReplay replay_loss_scale(const LossScaleOptions& options);

/// The scaler of a DeepSpeed file, and what here differs from it. Throws ConfigError where the file has none.
struct LossScaleFile {
  LossScaleOptions options;
  std::vector<std::string> warnings;
};
LossScaleFile read_loss_scale(const std::filesystem::path& deepspeed);

/// Version, and the names and defaults of every config key in lines of at most `columns`.
std::string version();
std::string config_help(std::size_t columns = 80);

/// A key of a config, by its own name ("lr") or another trainer's ("learning_rate"), and how it relates to
/// that; no name where there is none.
struct ConfigKey {
  std::string name;  // "optimizer.lr"
  std::string note;
};
ConfigKey find_config_key(std::string_view word);

}  // namespace mantissa::api
