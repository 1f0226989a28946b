// The config of a run (docs/cli.md, "Config"): one plain struct, read from TOML, overridden by --set, printed
// back resolved.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/compat/deepspeed.h"
#include "mantissa/optim/groups.h"
#include "mantissa/optim/optimizer.h"
#include "mantissa/precision/loss_scaler.h"
#include "mantissa/precision/policy.h"

namespace mantissa::config {

/// Held-out data: a share of the training sequences (the last ones, at least one where > 0), or files of its
/// own.
struct Validation {
  double share = 0.02;
  std::vector<std::string> files;  // where not empty, `share` does not count
  friend bool operator==(const Validation&, const Validation&) = default;
};

struct RunSection {
  std::string name;
  std::string out;
  std::uint64_t seed = 1;
  std::int64_t steps = 0;
  std::int64_t threads = 0;
  friend bool operator==(const RunSection&, const RunSection&) = default;
};

/// Exactly one of `path`, `config` and `fields` says what the model is.
struct ModelSection {
  std::string path;
  std::string config;
  nlohmann::json fields = nlohmann::json::object();  // config.json's own fields, written in [model]
  friend bool operator==(const ModelSection&, const ModelSection&) = default;
};

struct DataSection {
  std::vector<std::string> source;  // {"kk"}, or files and globs
  std::string format = "auto";
  std::string tokenizer = "byte";
  std::int64_t sequence_length = 256;
  std::int64_t people_min = 2, people_max = 8;  // of a puzzle
  bool shuffle = true;
  Validation validation;
  friend bool operator==(const DataSection&, const DataSection&) = default;
};

struct TrainSection {
  std::string objective = "pretrain";
  friend bool operator==(const TrainSection&, const TrainSection&) = default;
};

struct BatchSection {
  std::int64_t global_batch_size = 32;
  std::int64_t micro_batch_size = 8;
  std::int64_t leaf = 1;
  std::int64_t shards = 1;
  std::string recompute = "none";
  friend bool operator==(const BatchSection&, const BatchSection&) = default;
};

struct OptimizerSection {
  std::string name = "adamw";
  double lr = 3e-4;
  optim::Settings settings = optim::defaults(optim::find_optimizer("adamw"));  // that `name` takes
  double max_grad_norm = 1.0;
  std::vector<optim::Group> groups = {};
  friend bool operator==(const OptimizerSection&, const OptimizerSection&) = default;
};

struct ScheduleSection {
  std::string name = "cosine";
  std::int64_t warmup_steps = 20;
  double min_lr_ratio = 0.1;
  friend bool operator==(const ScheduleSection&, const ScheduleSection&) = default;
};

/// DeepSpeed's keys of the same names, and the rule. They count only under a policy with a loss scale.
struct LossScaleSection {
  std::string rule = "deepspeed";  // or "torch"
  double loss_scale = 0;
  std::int64_t initial_scale_power = 16;
  std::int64_t loss_scale_window = 1000;
  std::int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  double min_loss_scale = 1;
  bool raise_error_at_min_scale = true;
  friend bool operator==(const LossScaleSection&, const LossScaleSection&) = default;
};

struct CheckpointSection {
  std::int64_t interval = 100;
  std::int64_t keep = 2;
  friend bool operator==(const CheckpointSection&, const CheckpointSection&) = default;
};

struct LogSection {
  std::int64_t interval = 1;
  bool tensorboard = true;
  friend bool operator==(const LogSection&, const LogSection&) = default;
};

/// --precision, --rule and --deepspeed of a command line.
struct PrecisionArguments {
  std::optional<std::string> policy;  // replaces the config's policy and its fields, keeps its rules
  std::vector<std::string> rules;     // appended ("--rule 1", … in explain)
  const compat::DeepSpeedFile* deepspeed = nullptr;  // takes the place of the file that the config names;
                                                     // wins over the config's text, the others over it
};

/// What a user should be told, once, of how a config was read.
struct Told {
  std::vector<std::string> notes;     // what was read and how
  std::vector<std::string> warnings;  // what differs from what was written
};

/// A checked config. What each value means and may be is said once, by options().
struct RunConfig {
  RunSection run;
  ModelSection model;
  DataSection data;
  TrainSection train;
  BatchSection batch;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  precision::Policy policy;  // [precision]
  bool native_only = false;  // of [precision]: refuse a run that needs a format that the machine has not
  std::string deepspeed;  // of [precision]; empty in a config that was read: the other keys have what it says
  LossScaleSection loss_scale;
  CheckpointSection checkpoint;
  LogSection log;

  /// The resolved whole, every key said and paths absolute: parse_config reads an equal config from it.
  std::string to_toml() const;
  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

/// Reads the config file at `path` and puts `overrides` ("section.key=value", as --set has them; later ones
/// win) and `precision` over it. Relative paths in the file are relative to its folder, those in overrides to
/// the current directory, run.out in both to the current directory. A value of an override is TOML, or else a
/// bare string. Throws FileError where the file cannot be read or is no text, ConfigError for everything
/// wrong in it: the message has the file and line (or --set), the key, the value and the cure. What there is
/// to tell goes to `told` where it is not null.
RunConfig load_config(const std::filesystem::path& path, std::span<const std::string> overrides = {},
                      const PrecisionArguments& precision = {}, Told* told = nullptr);

/// The same from memory; `file` stands in messages, and its folder is what relative paths are relative to.
RunConfig parse_config(std::string_view text, const std::filesystem::path& file,
                       std::span<const std::string> overrides = {}, const PrecisionArguments& precision = {},
                       Told* told = nullptr);

/// The loss scaler that the policy and [precision.loss_scale] say; nothing where the policy has none.
std::optional<precision::ScalerOptions> scaler_options(const RunConfig& config);

/// What there is to know of a key.
struct OptionInfo {
  std::string section;
  std::string key;
  std::string type;           // "whole number", "number", "true or false", "string", …
  std::string default_value;  // as TOML; "" where there is none
  std::string description;
};

/// Every key of a config, in the order of its sections: the source of help and documentation.
std::vector<OptionInfo> options();

/// options() as a table for a terminal of `columns`.
std::string options_help(std::size_t columns = 80);

}  // namespace mantissa::config
