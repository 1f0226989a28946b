#include "mantissa/lab/metrics_file.h"

#include <fmt/format.h>

#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/json.h"

namespace mantissa::lab {

std::optional<double> number_in(const nlohmann::json& metrics, const char* key) {
  if (!metrics.is_object()) return std::nullopt;
  const auto found = metrics.find(key);
  if (found == metrics.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

StepLines::StepLines(const std::filesystem::path& path) : lines_(path), ahead_(read()) {}

std::optional<StepLine> StepLines::next() {
  std::optional<StepLine> current = std::exchange(ahead_, std::nullopt);
  if (!current) return std::nullopt;
  for (ahead_ = read(); ahead_ && ahead_->step == current->step; ahead_ = read())
    current->metrics.update(ahead_->metrics);
  if (ahead_ && ahead_->step < current->step) {
    throw FileError("{}:{}: expected a step after {}, got {}. Fix: give the file as the run wrote it",
                    lines_.path().string(), lines_.number(), current->step, ahead_->step);
  }
  return current;
}

std::optional<StepLine> StepLines::read() {
  std::string line;
  if (!lines_.next(line)) return std::nullopt;
  const std::string where = fmt::format("{}:{}", lines_.path().string(), lines_.number());
  try {
    nlohmann::json metrics = io::parse_json(line, where);
    const auto step = metrics.is_object() ? metrics.find("step") : metrics.end();
    if (step == metrics.end() || !step->is_number_integer())
      throw FileError(
          "{}: is not a metrics line: it has no whole number \"step\". Fix: give the metrics.jsonl of a run, as it "
          "wrote it",
          where);
    return StepLine{step->get<std::int64_t>(), std::move(metrics)};
  } catch (const FileError&) {
    if (lines_.is_complete()) throw;
    return std::nullopt;
  }
}

MetricsFile::MetricsFile(const std::filesystem::path& path, Health health) : metrics_(path) {
  const std::filesystem::path beside = path.parent_path() / "health.jsonl";
  if (health == Health::skip || !disk::exists(beside)) return;
  health_.emplace(beside);
  next_health_ = health_->next();
}

std::optional<StepLine> MetricsFile::next() {
  std::optional<StepLine> current = metrics_.next();
  if (!current || !health_) return current;
  while (next_health_ && next_health_->step < current->step) next_health_ = health_->next();
  if (!next_health_ || next_health_->step != current->step) return current;
  const auto found = next_health_->metrics.find("health");
  if (found != next_health_->metrics.end()) current->metrics["health"] = std::move(*found);
  return current;
}

}  // namespace mantissa::lab
