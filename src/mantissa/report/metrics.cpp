#include "mantissa/report/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/lines.h"
#include "mantissa/report/json_number.h"

namespace mantissa::report {
namespace {

// Returns the shortest decimal text that reads back as `value`.
std::string shortest(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

// The step of a line, and whether it is a validation line.
struct Line {
  std::int64_t step = 0;
  bool validation = false;
};
std::optional<Line> read_line(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step");
  if (step == json.end() || !step->is_number_integer()) return std::nullopt;
  return Line{step->get<std::int64_t>(), json.contains("validation_loss")};
}

// The kept part of a file: the lines up to `last_step`. Steps increase, so these lines are contiguous.
struct Kept {
  std::uint64_t bytes = 0;
  std::optional<std::int64_t> validated;  // the last step with a validation line
  std::int64_t damaged = 0;               // lines with zeros, which a crash may leave
};
Kept kept_of(const std::filesystem::path& path, std::int64_t last_step) {
  disk::LineReader lines(path);
  Kept kept;
  std::string line;
  std::uint64_t bytes = 0;
  std::int64_t damaged = 0;
  while (lines.next(line) && lines.is_complete()) {
    const std::optional<Line> read = read_line(line);
    if (read && read->step > last_step) break;
    bytes += line.size() + 1;
    if (line.find('\0') != std::string::npos) {
      ++damaged;
      continue;
    }
    if (!read) {
      throw FileError("{}: line {} is not a metrics line; remove it to resume", path.string(),
                      lines.number());
    }
    kept.bytes = bytes;  // damaged lines at the end are cut
    kept.damaged = damaged;
    if (read->validation) kept.validated = read->step;
  }
  return kept;
}

/// Writes the first `bytes` bytes of the file again, without damaged lines.
void remove_damaged(const std::filesystem::path& path, std::uint64_t bytes) {
  disk::LineReader lines(path);
  std::string line, text;
  for (std::uint64_t at = 0; at < bytes && lines.next(line); at += line.size() + 1) {
    if (line.find('\0') == std::string::npos) text += line + '\n';
  }
  disk::write_file_atomic(path, text);
}

StepLog open_at(const std::filesystem::path& path, std::int64_t resumed_step,
                std::optional<std::int64_t>& validated) {
  // First opens the file, which refuses a link or a pipe.
  StepLog log{disk::AppendFile(path)};
  const Kept kept = resumed_step > 0 ? kept_of(path, resumed_step) : Kept{};
  validated = kept.validated;
  if (kept.damaged > 0) {
    remove_damaged(path, kept.bytes);
    return {disk::AppendFile(path), kept.damaged};
  }
  log.file.truncate(kept.bytes);
  return log;
}

}  // namespace

std::string StepLog::note() const {
  if (damaged == 0) return "";
  return fmt::format("{}: {} that a crash had damaged {} removed", file.path().string(),
                     counted(damaged, "line"), damaged == 1 ? "was" : "were");
}

StepLog append_after(const std::filesystem::path& path, std::int64_t step) {
  std::optional<std::int64_t> validated;
  return open_at(path, step, validated);
}

std::string metrics_line(const StepMetrics& m) {
  std::string more;
  for (const auto& [name, value] : m.more)
    more += fmt::format(",{}:{}", nlohmann::json(name).dump(), json_number(value, 9));
  return fmt::format(
      R"({{"step":{},"loss":{},"tokens":{},"grad_norm":{},"lr":{},"loss_scale":{},"skipped":{},)"
      R"("tokens_per_second":{},"peak_share":{},"seconds":{}{}}})",
      m.step, json_number(m.loss, 9), m.tokens, json_number(m.grad_norm, 9), shortest(m.lr),
      m.loss_scale ? shortest(*m.loss_scale) : "null", m.skipped, json_number(m.tokens_per_second, 6),
      json_number(m.peak_share, 4), json_number(m.seconds, 6), more);
}

std::string validation_line(std::int64_t step, double loss,
                            std::span<const std::pair<std::string, double>> more) {
  std::string text = fmt::format(R"({{"step":{},"validation_loss":{})", step, json_number(loss, 9));
  for (const auto& [name, value] : more) text += fmt::format(R"(,"{}":{})", name, json_number(value, 9));
  return text + "}";
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t resumed_step)
    : log_(open_at(path, resumed_step, validated_)) {}

std::vector<bool> read_skipped(const std::filesystem::path& path) {
  disk::LineReader lines(path);
  std::vector<bool> skipped;
  std::string line;
  while (lines.next(line)) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const std::optional<Line> read = read_line(line);
    if (!read || (!read->validation && !(json.contains("skipped") && json["skipped"].is_boolean())))
      throw FileError(
          "{}: line {} is not a metrics line. Fix: give the metrics.jsonl of a run, as it wrote it",
          path.string(), lines.number());
    if (read->validation) continue;
    skipped.push_back(json["skipped"].get<bool>());
    if (read->step != static_cast<std::int64_t>(skipped.size())) {
      throw FileError(
          "{}: line {} is step {}, but step {} was expected; a replay needs every step (log.interval = 1)",
          path.string(), lines.number(), read->step, skipped.size());
    }
  }
  if (skipped.empty()) throw FileError("{}: contains no steps", path.string());
  return skipped;
}

void MetricsWriter::write(const StepMetrics& metrics) {
  log_.file.write(metrics_line(metrics) + '\n');
}

void MetricsWriter::write_validation(std::int64_t step, double loss,
                                     std::span<const std::pair<std::string, double>> more) {
  if (validated_ == step) return;
  log_.file.write(validation_line(step, loss, more) + '\n');
  validated_ = step;
}

}  // namespace mantissa::report
