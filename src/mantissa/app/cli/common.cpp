#include "mantissa/app/cli/common.h"

#include "mantissa/app/api/base.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"

#include <fmt/format.h>

#include "mantissa/app/cli/output.h"

namespace mantissa::cli {

api::Config allowed(const Arguments& a, api::Config config) {
  return a.has("--allow-programs") ? config.allow_programs() : config;
}

api::Precision precision_of(const Arguments& a) {
  api::Precision precision;
  if (a.has("--precision")) precision.policy = a.text("--precision");
  precision.rules = a.texts("--rule");
  precision.deepspeed = a.text("--deepspeed");
  return precision;
}

api::Model model_of(const Arguments& a) {
  return {a.at(0), a.text("--adapter"), a.text("--base")};
}

api::Hardware hardware_of(const Arguments& a) {
  constexpr std::int64_t kMost = 1024;
  if (a.text("--device").empty())
    throw ConfigError("--device: the value is empty; omit the option for the default");
  return {static_cast<int>(a.integer("--threads", 0, kMost)), a.text("--simd"), a.text("--device")};
}

void tell(const Arguments& a, const std::vector<std::string>& notes,
          const std::vector<std::string>& warnings) {
  if (a.has("--quiet")) return;
  for (const std::string& note : notes)
    print_message(Message::note, fmt::format("mantissa: note: {}\n", printable(note)));
  for (const std::string& warning : warnings)
    print_message(Message::warning, fmt::format("mantissa: warning: {}\n", printable(warning)));
}

void tell_model(const Arguments& a) {
  if (!a.has("--quiet")) tell(a, api::base_notes(model_of(a)), api::warnings_of(model_of(a)));
}

void tell_policy(const Arguments& a, bool backward) {
  const api::Reading reading = api::read_precision(precision_of(a), backward);
  tell(a, reading.notes, reading.warnings);
}

int report_interrupt(const SignalStop& signals, std::string_view result) {
  flush_output();
  print_error(fmt::format("mantissa: {}: {}\n", signals.reason(), result));
  return kInterrupted;
}

void refuse_given(const Arguments& a, std::initializer_list<const char*> options, std::string_view message) {
  for (const char* option : options) {
    if (a.has(option)) throw ConfigError(fmt::format(fmt::runtime(message), option));
  }
}

bool is_config(const std::filesystem::path& path) {
  return path.extension() == ".toml";
}

std::string name_of_run(const std::filesystem::path& path) {
  return is_config(path) ? path.stem().string() : last_name(path);
}

std::string given_file(const Arguments& a, const char* option) {
  return a.has(option) ? a.text(option) : "";
}

}  // namespace mantissa::cli
