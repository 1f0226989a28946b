// The precision policy of a command, and notes on how it was read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::api {

/// A precision policy: a preset or line that replaces the config's policy, additional rules, and a DeepSpeed
/// file, whose policy applies if `policy` is empty.
struct Precision {
  std::optional<std::string> policy;  // "bf16-mixed", "params=f32 compute=bf16 …"
  std::vector<std::string> rules;     // "lm_head: compute=f32"
  std::filesystem::path deepspeed{};  // empty: none
};

/// A policy's canonical name and line, and notes on how it was read.
struct Reading {
  std::string policy;                 // "bf16-mixed: params=f32 compute=bf16 …"
  std::vector<std::string> notes;     // how it was read
  std::vector<std::string> warnings;  // differences from the written policy
};
/// Returns the policy for a model directory, by default `32-true`. Ignores rules for the update and, unless
/// `backward` is true, for the backward pass, with a note. Throws ConfigError, FileError.
Reading read_precision(const Precision& precision, bool backward = false);

/// A policy in the settings of another system.
struct Emitted {
  std::string settings;              // Python, options of a command line, or JSON
  std::vector<std::string> missing;  // what they do not express, and what they mean instead
};
/// Returns the settings of `system` ("te", "torchtitan", "megatron", "deepspeed") that are nearest to the
/// policy. Throws ConfigError, FileError.
Emitted emitted(const Precision& precision, const std::string& system);

/// A named policy.
struct Preset {
  std::string name;                  // "bf16-mixed"
  std::vector<std::string> aliases;  // "bf16", "torch.bfloat16"
  std::string meaning;               // in lower case, without a full stop
  std::string line;                  // "params=f32 compute=bf16 …"
};
/// Returns all presets.
std::vector<Preset> presets();
/// Returns the keys of a rule: "match", "op", …, "compute", ….
std::vector<std::string> rule_keys();

}  // namespace mantissa::api
