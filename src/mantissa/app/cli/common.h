// Common parts of the commands: the policy, hardware and notes of a command line.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/arguments.h"
#include "mantissa/app/cli/option_groups.h"
#include "mantissa/app/cli/signal_stop.h"

namespace mantissa::cli {

/// Reads --precision, --rule and --deepspeed.
api::Precision precision_of(const Arguments& a);

/// Returns `config`, which may run its programs if the command has --allow-programs.
api::Config allowed(const Arguments& a, api::Config config);
/// Returns the model of the command, with the adapter of --adapter, held as --base says.
api::Model model_of(const Arguments& a);
/// Warns if the base of an adapter has changed since its run began.
void tell_model(const Arguments& a);
/// Reads --threads, --simd and --device.
api::Hardware hardware_of(const Arguments& a);

/// Returns the file that an option names, which is never empty, or "" without it.
std::string given_file(const Arguments& a, const char* option);

/// Reads the options of generate and chat: those of kSampling, the policy, the machine, …
template <class SamplingOptions>
void read_sampling(const Arguments& a, SamplingOptions& options) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  options.max_new_tokens = a.integer("--max-new-tokens", 1, std::int64_t{1} << 24);
  options.temperature = a.number("--temperature");
  options.top_k = a.integer("--top-k", 0, kMany);
  options.top_p = a.number("--top-p");
  options.min_p = a.number("--min-p");
  options.repetition_penalty = a.number("--repetition-penalty");
  options.stop = a.texts("--stop");
  options.seed = a.seed();
  options.precision = precision_of(a);
  options.hardware = hardware_of(a);
}

/// Prints notes and warnings on standard error, unless --quiet.
void tell(const Arguments& a, const std::vector<std::string>& notes,
          const std::vector<std::string>& warnings);
/// Prints the notes on the policy for a model. `backward`: the command has a backward pass.
void tell_policy(const Arguments& a, bool backward = false);

inline constexpr int kInterrupted = 130;  // the exit code
/// Prints on standard error which signal ended a command, and the state of its result. Returns the exit code.
int report_interrupt(const SignalStop& signals, std::string_view result);

/// Throws ConfigError for the first of `options` that was given. "{0}" in `message` stands for its name.
void refuse_given(const Arguments& a, std::initializer_list<const char*> options, std::string_view message);

/// Returns true if `path` names a config.
bool is_config(const std::filesystem::path& path);

/// Returns the name of a config without its extension, or of a directory: the default outputs are named after
/// it.
std::string name_of_run(const std::filesystem::path& path);

/// Runs eval --needle.
int eval_needle(const Arguments& a);

/// Parses and runs a command line. Converts every error to one message and an exit code: 0 success, 1 stopped
/// for the reason in the message, 2 invalid usage, config or input, 130 interrupted.
int run_command_line(int argc, const char* const* argv);

}  // namespace mantissa::cli
