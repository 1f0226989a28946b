#include "mantissa/lab/audit/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/runtime/surroundings.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/programs/training.h"

namespace mantissa::lab {
namespace {

constexpr std::size_t kPiece = 1024;

config::RunConfig in_f32(const config::RunConfig& config) {
  config::RunConfig f32 = config;
  f32.policy = precision::Policy();
  f32.log.health_interval = 0;
  f32.log.tensorboard = false;
  f32.run.on_nonfinite = "stop";
  return f32;
}

/// Copies the masters of one trainer, and the states that its rows continue, into another, in its formats.
void transfer_values(train::Trainer& from, train::Trainer& to) {
  const std::vector<train::Trainer::NamedMemory> targets = to.state_memory();
  std::array<double, kPiece> values;
  std::vector<std::byte> read, written;
  for (const train::Trainer::NamedMemory& m : from.state_memory()) {
    const auto target = std::ranges::find(targets, m.name, &train::Trainer::NamedMemory::name);
    if (!m.name.starts_with("master.") && !m.name.starts_with("carried.")) continue;
    if (target == targets.end()) continue;
    const std::size_t width = bytes_of(m.type), wide = bytes_of(target->type), count = m.bytes.size() / width;
    for (std::size_t at = 0; at < count; at += kPiece) {
      const std::size_t n = std::min(kPiece, count - at);
      read.resize(n * width);
      written.resize(n * wide);
      m.read(at * width, read);
      load_row(read.data(), m.type, 0, n, values.data());
      store_row(values.data(), n, written.data(), target->type, 0);
      target->write(at * wide, written);
    }
  }
}

/// Compares a gradient, divided by `loss_scale`, with the exact one.
GradientStep compared(const train::Trainer::NamedGradient& seen, const train::Trainer::NamedGradient& exact,
                      double loss_scale) {
  GradientStep g;
  std::array<double, kPiece> a, b;
  double error = 0, squares = 0, product = 0, own = 0;
  std::int64_t zeros = 0, vanished = 0, present = 0;
  const auto count = static_cast<std::size_t>(seen.count);
  for (std::size_t from = 0; from < count; from += kPiece) {
    const std::size_t n = std::min(kPiece, count - from);
    load_row(seen.values.data, seen.values.type, from, n, a.data());
    load_row(exact.values.data, exact.values.type, from, n, b.data());
    for (std::size_t i = 0; i < n; ++i) {
      const double x = a[i] / loss_scale;
      zeros += x == 0 ? 1 : 0;
      present += b[i] != 0 ? 1 : 0;
      vanished += x == 0 && b[i] != 0 ? 1 : 0;
      error += (x - b[i]) * (x - b[i]);
      squares += b[i] * b[i];
      own += x * x;
      product += x * b[i];
    }
  }
  g.zeros = static_cast<double>(zeros) / static_cast<double>(std::max<std::size_t>(1, count));
  g.vanished = present == 0 ? 0 : static_cast<double>(vanished) / static_cast<double>(present);
  g.rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, count)));
  if (squares > 0) g.error = std::sqrt(error / squares);
  if (squares > 0 && own > 0) g.cosine = product / std::sqrt(squares * own);
  return g;
}

}  // namespace

GradientReference::GradientReference(const AuditSource& source, const config::RunConfig& config) {
  if (config.train.objective == "rl") {
    absent_ = "its rows are sampled with the weights under the policy";
    return;
  }
  if (!source.task.repeats()) {
    absent_ = "its rows cannot be drawn twice";
    return;
  }
  const config::RunConfig f32 = in_f32(config);
  try {
    const std::size_t needed =
        forecast::forecast_memory(programs::compile_parts(f32, source.model.config, source.device), 0).peak();
    const std::size_t there = runtime::available_memory_bytes();
    if (there > 0 && needed > there) {
      absent_ = fmt::format("the same step in f32 needs {:.1f} GB more memory, and {:.1f} GB are free",
                            static_cast<double>(needed) / 1e9, static_cast<double>(there) / 1e9);
      return;
    }
    f32_ = std::make_unique<train::Trainer>(f32, source.model, source.task.again(f32), source.device);
  } catch (const Error& e) {
    absent_ = fmt::format("the same run in f32 does not start: {}", e.what());
  }
}

bool GradientReference::compute(train::Trainer& trainer, const std::stop_token& stop) {
  if (f32_ == nullptr) return false;
  trainer.next_executor();  // enters the part of the step, whose weights are copied
  f32_->restore({trainer.step(), trainer.applied(), trainer.tokens(), 0, trainer.stage_applied()}, {});
  f32_->next_executor();
  transfer_values(trainer, *f32_);
  f32_->restore({trainer.step(), trainer.applied(), trainer.tokens(), 0, trainer.stage_applied()}, {});
  try {
    const runtime::RouterRecord record(f32_->next_executor());
    const std::optional<train::StepReport> r = f32_->advance(stop);
    choices_ = record.choices();
    return r && !r->skipped;
  } catch (const RunStopped&) {
    return false;
  }
}

std::map<std::string, GradientStep> GradientReference::compare(train::Trainer& trainer,
                                                               double loss_scale) const {
  std::map<std::string, GradientStep> all;
  const std::vector<train::Trainer::NamedGradient> exact = f32_->last_gradients();
  for (const train::Trainer::NamedGradient& seen : trainer.last_gradients()) {
    const auto of = std::ranges::find(exact, seen.name, &train::Trainer::NamedGradient::name);
    if (of != exact.end() && of->count == seen.count) all[seen.name] = compared(seen, *of, loss_scale);
  }
  return all;
}

}  // namespace mantissa::lab
