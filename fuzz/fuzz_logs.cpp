// The logs of two runs, read for a comparison and for resuming: metrics.jsonl and health.jsonl, and those of
// the other run as other.jsonl.
#include "bundle.h"
#include "check.h"
#include "mantissa/lab/diff/metrics_differences.h"
#include "mantissa/lab/metrics_file.h"
#include "mantissa/report/metrics.h"
#include "target.h"

using namespace mantissa;

namespace {

/// Returns the steps of a file, which increase.
std::size_t count_steps(lab::MetricsFile&& file) {
  std::size_t steps = 0;
  std::int64_t last = -1;
  while (const auto line = file.next()) {
    fuzz::require(steps == 0 || line->step > last, "steps increase");
    for (const char* key : {"loss", "lr", "validation_loss"}) lab::number_in(line->metrics, key);
    last = line->step;
    ++steps;
  }
  return steps;
}

}  // namespace

MANTISSA_FUZZ_TARGET(logs, fuzz::mutate_bundle) {
  const auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  const fuzz::Folder folder(*files);
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl",
                              other = folder.path() / "other.jsonl";
  fuzz::expect_only_errors([&] { count_steps(lab::MetricsFile(metrics)); });
  fuzz::expect_only_errors([&] { count_steps(lab::MetricsFile(metrics, lab::Health::join)); });
  fuzz::expect_only_errors([&] { lab::compare_metrics(metrics, other); });
  fuzz::expect_only_errors([&] {
    const lab::MetricsDifferences same = lab::compare_metrics(metrics, metrics);
    fuzz::require(same.equal(), "a file equals itself");
  });
  fuzz::expect_only_errors([&] { report::read_skipped(metrics); });
  for (const fuzz::BundledFile& file : *files) {
    fuzz::expect_only_errors([&] { report::append_after(folder.path() / file.name, 2); });
    fuzz::expect_only_errors([&] {
      const report::StepLog log = report::append_after(folder.path() / file.name, 2);
      fuzz::require(log.damaged == 0, "a log that was cut has no damaged lines");
    });
  }
  fuzz::expect_only_errors([&] {
    report::MetricsWriter writer(metrics, 2);
    writer.write({.step = 3});
    writer.write_validation(3, 1.5);
  });
  return 0;
}
