#include "mantissa/lab/compare/run_bytes.h"

#include <string>
#include <vector>

namespace mantissa::lab {
namespace {

/// Calls `visit` with each measurement but the curves.
template <class Run, class Visit>
void visit_measurements(Run& run, const Visit& visit) {
  visit(run.steps);
  visit(run.stopped);
  visit(run.stopped_at);
  visit(run.skipped);
  visit(run.validation_loss);
  visit(run.tokens_per_second);
  visit(run.peak_bytes);
  visit(run.weight_distance);
  visit(run.updates_lost);
  visit(run.reduce_flushed);
  visit(run.reduce_saturated);
  visit(run.sent_bytes);
  visit(run.findings);
  visit(run.losses);
}

}  // namespace

comm::Bytes bytes_of(const ComparedRun& run) {
  comm::Bytes bytes;
  visit_measurements(run, [&](const auto& value) { comm::append(bytes, value); });
  for (const auto& [name, curve] : run.curves) {
    comm::append(bytes, name);
    comm::append(bytes, curve.steps);
    comm::append(bytes, curve.values);
  }
  return bytes;
}

void set_measurements(ComparedRun& run, std::span<const std::byte> bytes) {
  visit_measurements(run, [&]<class T>(T& value) { value = comm::take<T>(bytes); });
  while (!bytes.empty()) {
    ComparedCurve& curve = run.curves[comm::take<std::string>(bytes)];
    curve.steps = comm::take<std::vector<std::int64_t>>(bytes);
    curve.values = comm::take<std::vector<double>>(bytes);
  }
}

}  // namespace mantissa::lab
