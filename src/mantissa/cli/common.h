// What the commands share: the policy, the machine and the notes of a command line; and the commands
// themselves.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/api/mantissa.h"
#include "mantissa/cli/arguments.h"

namespace mantissa::cli {

/// --precision, --rule and --deepspeed.
api::Precision precision_of(const Arguments& a);
/// --threads, --simd and --device.
api::Hardware hardware_of(const Arguments& a);

/// Prints on standard error how a policy or a config was read; nothing under --quiet.
void tell(const Arguments& a, const std::vector<std::string>& notes,
          const std::vector<std::string>& warnings);
/// The same of the policy that a model is read under; `backward`: the command has a backward pass.
void tell_policy(const Arguments& a, bool backward = false);

/// Whether `path` names a config.
bool is_config(const std::filesystem::path& path);

// Each runs a command and returns the exit code.
int train(const Arguments& a);
int generate(const Arguments& a);
int eval(const Arguments& a);
int trace(const Arguments& a);
int explain(const Arguments& a);
int inspect(const Arguments& a);
int convert(const Arguments& a);
int loss_scale(const Arguments& a);
int data_kk(const Arguments& a);
int doctor(const Arguments& a);

/// Parses, runs, and turns every error into one message and an exit code: 0 done, 1 stopped for a reason that
/// is stated, 2 wrong usage, config or input, 130 interrupted.
int run_command_line(int argc, const char* const* argv);

}  // namespace mantissa::cli
