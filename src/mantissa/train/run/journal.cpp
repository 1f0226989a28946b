#include "mantissa/train/run/journal.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "mantissa/setup/config/stages.h"

namespace mantissa::run {
namespace {

constexpr std::size_t kMostKept = 32;  // steps

std::vector<report::TaggedDistribution> histograms_of(const std::vector<runtime::ParameterHealth>& health) {
  std::vector<report::TaggedDistribution> all;
  const auto add = [&](const char* what, const std::string& name, const Distribution& d) {
    if (d.count > 0) all.emplace_back(fmt::format("{}/{}", what, name), &d);
  };
  for (const runtime::ParameterHealth& p : health) {
    if (p.distributions == nullptr) continue;
    add("weights", p.name, p.distributions->weight);
    add("gradients", p.name, p.distributions->gradient);
  }
  return all;
}

}  // namespace

Journal::Journal(const config::RunConfig& config, const std::filesystem::path& out, std::int64_t step,
                 const std::string& events)
    : config_(config), metrics_(out / "metrics.jsonl", step), health_(out / "health.jsonl", step) {
  if (config.log.tensorboard) board_.emplace(out, step, events);
}

void Journal::write(const train::StepReport& r) {
  if (r.step % config_.log.interval == 0 || r.step == config_.run.steps || !r.health.empty()) {
    kept_.clear();
    return write_line(r);
  }
  if (kept_.size() == kMostKept) kept_.pop_front();
  kept_.push_back(r);
}

void Journal::write_kept() {
  for (const train::StepReport& r : kept_) write_line(r);
  kept_.clear();
}

void Journal::write_line(const train::StepReport& r) {
  report::StepMetrics m;
  m.step = r.step;
  m.loss = r.loss;
  m.tokens = r.tokens;
  m.grad_norm = r.grad_norm;
  m.lr = r.lr;
  m.loss_scale = r.loss_scale;
  m.skipped = r.skipped;
  m.tokens_per_second = r.tokens_per_second;
  m.peak_share = r.peak_share;
  m.seconds = r.seconds;
  if (!config_.run.stages.empty()) {
    const std::int64_t length = config_.run.stages[config::stage_at(config_, r.step - 1)].sequence_length;
    m.more.emplace_back("sequence_length", static_cast<double>(length));
  }
  if (r.fallback_share > 0) m.more.emplace_back("fallback_share", r.fallback_share);
  for (const objective::Metric& metric : r.metrics) m.more.emplace_back(metric.name, metric.value);
  metrics_.write(m);
  health_.write(r.step, r.health);
  if (!board_) return;
  if (groups()) {
    for (std::size_t i = m.more.size() - r.metrics.size(); i < m.more.size(); ++i)
      m.more[i].first = "rl/" + m.more[i].first;
  }
  board_->write(m, report::health_scalars(r.health));
  board_->write_histograms(m.step, histograms_of(r.health));
}

void Journal::sync() {
  metrics_.sync();
  health_.sync();
  if (board_) board_->sync();
}

std::vector<std::string> Journal::notes() const {
  std::vector<std::string> notes = {metrics_.note(), health_.note()};
  std::erase(notes, "");
  return notes;
}

bool Journal::groups() const {
  return config_.train.objective == "rl";
}

void Journal::write_validation(std::int64_t step, const train::Validation& validation) {
  const double loss = validation.loss.value_or(std::numeric_limits<double>::quiet_NaN());
  std::vector<std::pair<std::string, double>> more;
  for (const objective::Metric& m : validation.metrics) more.emplace_back("validation_" + m.name, m.value);
  metrics_.write_validation(step, loss, more);
  if (!board_) return;
  more.emplace_back("validation_loss", loss);
  constexpr std::string_view kPrefix = "validation_";
  if (groups()) {
    for (auto& [name, value] : more) name = "validation/" + name.substr(kPrefix.size());
  }
  for (const auto& [name, value] : more) {
    if (std::isfinite(value)) board_->write_scalar(step, name, value);
  }
}

}  // namespace mantissa::run
