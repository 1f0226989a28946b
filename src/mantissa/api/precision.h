// The precision policy of a command, and how it was read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::api {

/// A precision policy: a preset or line that replaces the config's, rules on top of it, and a DeepSpeed file,
/// whose policy counts where `policy` is empty.
struct Precision {
  std::optional<std::string> policy;  // "bf16-mixed", "params=f32 compute=bf16 …"
  std::vector<std::string> rules;     // "lm_head: compute=f32"
  std::filesystem::path deepspeed{};  // empty: none
};

/// A policy's canonical name and line, and how it was read.
struct Reading {
  std::string policy;                 // "bf16-mixed: params=f32 compute=bf16 …"
  std::vector<std::string> notes;     // how it was read
  std::vector<std::string> warnings;  // what differs from what was written
};
/// Returns the policy that a model directory is read under: `32-true` where none is given. Rules of the
/// update, and unless `backward` is true of the backward pass, are left out, which is a note. Throws
/// ConfigError, FileError.
Reading read_precision(const Precision& precision, bool backward = false);

}  // namespace mantissa::api
