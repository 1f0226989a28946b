// The commands, and their common parts: the policy, hardware and notes of a command line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/app/cli/arguments.h"
#include "mantissa/app/cli/signal_stop.h"

namespace mantissa::cli {

/// Reads --precision, --rule and --deepspeed.
api::Precision precision_of(const Arguments& a);
/// Returns the model of the command, with the adapter of --adapter, held as --base says.
api::Model model_of(const Arguments& a);
/// Warns if the base of an adapter has changed since its run began.
void tell_model(const Arguments& a);
/// Reads --threads, --simd and --device.
api::Hardware hardware_of(const Arguments& a);

/// Prints notes and warnings on standard error, unless --quiet.
void tell(const Arguments& a, const std::vector<std::string>& notes,
          const std::vector<std::string>& warnings);
/// Prints the notes on the policy for a model. `backward`: the command has a backward pass.
void tell_policy(const Arguments& a, bool backward = false);

inline constexpr int kInterrupted = 130;  // the exit code
/// Prints on standard error which signal ended a command, and the state of its result. Returns the exit code.
int report_interrupt(const SignalStop& signals, std::string_view result);

/// Returns true if `path` names a config.
bool is_config(const std::filesystem::path& path);

/// Returns the name of a config without its extension, or of a directory: the default outputs are named after
/// it.
std::string name_of_run(const std::filesystem::path& path);

// Each function runs a command and returns the exit code.
int init(const Arguments& a);
int train(const Arguments& a);
int rl(const Arguments& a);
int generate(const Arguments& a);
int chat(const Arguments& a);
int eval(const Arguments& a);
int eval_needle(const Arguments& a);
int trace(const Arguments& a);
int explain(const Arguments& a);
int audit(const Arguments& a);
int compare(const Arguments& a);
int inspect(const Arguments& a);
int diff(const Arguments& a);
int convert(const Arguments& a);
int merge(const Arguments& a);
int loss_scale(const Arguments& a);
int objective(const Arguments& a);
int reward(const Arguments& a);
int data_kk(const Arguments& a);
int data_inspect(const Arguments& a);
int data_shard(const Arguments& a);
int tokenizer_encode(const Arguments& a);
int tokenizer_decode(const Arguments& a);
int tokenizer_info(const Arguments& a);
int tokenizer_train(const Arguments& a);
int doctor(const Arguments& a);

/// Parses and runs a command line. Converts every error to one message and an exit code: 0 success, 1 stopped
/// for the reason in the message, 2 invalid usage, config or input, 130 interrupted.
int run_command_line(int argc, const char* const* argv);

}  // namespace mantissa::cli
