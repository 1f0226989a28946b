#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/compat/deepspeed.h"
#include "mantissa/config/unknown.h"
#include "mantissa/kernels/thread_pool.h"

namespace mantissa::api {

namespace {

/// The arguments with the DeepSpeed file that they name.
struct Arguments {
  explicit Arguments(const Precision& precision) : all{precision.policy, precision.rules, nullptr} {
    if (precision.deepspeed.empty()) return;
    file = compat::read_deepspeed(precision.deepspeed);
    all.deepspeed = &*file;
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  std::optional<compat::DeepSpeedFile> file;
  config::PrecisionArguments all;
};

}  // namespace

Config Config::load(const std::filesystem::path& path, std::span<const std::string> overrides,
                    const Precision& precision) {
  const Arguments arguments(precision);
  Impl impl;
  impl.run = config::load_config(path, overrides, arguments.all, &impl.told);
  return Config(std::make_shared<const Impl>(std::move(impl)));
}

Config Config::parse(std::string_view text, std::span<const std::string> overrides,
                     const Precision& precision) {
  const Arguments arguments(precision);
  Impl impl;
  impl.run = config::parse_config(text, std::filesystem::current_path() / "config", overrides, arguments.all,
                                  &impl.told);
  return Config(std::make_shared<const Impl>(std::move(impl)));
}

std::string Config::toml() const {
  return impl_->run.to_toml();
}
std::filesystem::path Config::out() const {
  return impl_->run.run.out;
}
std::string Config::policy() const {
  return fmt::format("{}: {}", impl_->run.policy.preset(), impl_->run.policy.line());
}

const std::vector<std::string>& Config::notes() const {
  return impl_->told.notes;
}
const std::vector<std::string>& Config::warnings() const {
  return impl_->told.warnings;
}

kernels::Context context_for(const Hardware& hardware, std::int64_t config_threads) {
  if (hardware.device != "cpu") {
    throw ConfigError(
        fmt::format("--device {}: this build runs on the cpu; leave --device out", hardware.device));
  }
  kernels::Context ctx;
  ctx.simd = hardware.simd.empty() ? kernels::best_simd() : kernels::parse_simd(hardware.simd);
  const std::int64_t asked = hardware.threads != 0 ? hardware.threads : config_threads;
  constexpr std::int64_t kMostThreads = 1024;
  if (asked < 0 || asked > kMostThreads) {
    throw ConfigError(
        fmt::format("--threads {}: must be between 1 and {}, or 0 for all cores", asked, kMostThreads));
  }
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  ctx.threads = static_cast<int>(asked > 0 ? asked : cores);
  ctx.pool = std::make_shared<kernels::ThreadPool>(ctx.threads);
  return ctx;
}

std::string version() {
  return "0.1.0";
}
std::string config_help(std::size_t columns) {
  return config::options_help(columns);
}

ConfigKey find_config_key(std::string_view word) {
  const config::KnownKey key = config::find_key(word);
  return {key.name, key.note};
}

std::string human_bytes(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.0f} KB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string human_seconds(double seconds) {
  if (seconds < 0.1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 90) return fmt::format("{:.1f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

}  // namespace mantissa::api
