#include "mantissa/run/journal.h"

#include <cmath>

namespace mantissa::run {

Journal::Journal(const config::RunConfig& config, const std::filesystem::path& out, std::int64_t step)
    : config_(config), metrics_(out / "metrics.jsonl", step) {
  if (config.log.tensorboard) board_.emplace(out, step);
}

void Journal::write(const train::StepReport& r) {
  if (r.step % config_.log.interval != 0 && r.step != config_.run.steps) return;
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
  if (r.fallback_share > 0) m.more.emplace_back("fallback_share", r.fallback_share);
  for (const objective::Metric& metric : r.metrics) m.more.emplace_back(metric.name, metric.value);
  metrics_.write(m);
  if (board_) board_->write(m);
}

void Journal::write_validation(std::int64_t step, double loss) {
  metrics_.write_validation(step, loss);
  if (board_ && std::isfinite(loss)) board_->write_validation(step, loss);
}

}  // namespace mantissa::run
