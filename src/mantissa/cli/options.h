// The options that every command takes, and how a command is declared.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/api/mantissa.h"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace mantissa::cli {

struct CommonOptions {
  std::optional<std::string> precision;
  std::vector<std::string> rules;
  std::vector<std::string> set;
  std::string deepspeed;
  std::vector<std::string> targets;  // of explain
  int threads = 0;
  std::string simd, device = "cpu";
  bool json = false;
  bool quiet = false;

  /// Adds them to a command.
  void add_to(CLI::App& command);
  /// Throws where there are targets and the command is not explain.
  api::Precision policy(bool explains = false) const;
  api::Hardware hardware() const;
  /// Says on standard error how a policy or a config was read; not where --quiet is given.
  void tell(const std::vector<std::string>& notes, const std::vector<std::string>& warnings) const;
  /// The same of the policy that a model directory is read under.
  void tell_policy() const;
};

/// A seed is a whole number that 64 bits hold; the option's own reading takes "-1" and 24 digits too.
CLI::Validator whole_seed();

/// Declares a command on `app`; `run` is set to what it does, which returns the exit code.
using Run = std::function<int()>;
void add_train(CLI::App& app, CommonOptions& common, Run& run);
void add_generate(CLI::App& app, CommonOptions& common, Run& run);
void add_eval(CLI::App& app, CommonOptions& common, Run& run);
void add_trace(CLI::App& app, CommonOptions& common, Run& run);
void add_explain(CLI::App& app, CommonOptions& common, Run& run);
void add_inspect(CLI::App& app, CommonOptions& common, Run& run);
void add_convert(CLI::App& app, CommonOptions& common, Run& run);
void add_loss_scale(CLI::App& app, CommonOptions& common, Run& run);
void add_data(CLI::App& app, CommonOptions& common, Run& run);
void add_doctor(CLI::App& app, CommonOptions& common, Run& run);

/// Parses, runs, and turns every error into one message and an exit code: 0 done, 1 the run stopped for a
/// reason it states, 2 bad usage, config or input, 130 interrupted.
int run_command_line(int argc, const char* const* argv);

}  // namespace mantissa::cli
