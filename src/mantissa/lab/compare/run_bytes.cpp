#include "mantissa/lab/compare/run_bytes.h"

#include <string>
#include <tuple>
#include <vector>

namespace mantissa::lab {
namespace {

/// Returns the measurements but the curves.
template <class Run>
auto measurements_of(Run& run) {
  return std::tie(run.steps, run.stopped, run.stopped_at, run.skipped, run.validation_loss,
                  run.tokens_per_second, run.peak_bytes, run.weight_distance, run.updates_lost,
                  run.reduce_flushed, run.reduce_saturated, run.sent_bytes, run.findings, run.losses);
}

}  // namespace

comm::Bytes bytes_of(const ComparedRun& run) {
  comm::Bytes bytes;
  comm::append_all(bytes, measurements_of(run));
  for (const auto& [name, curve] : run.curves) {
    comm::append(bytes, name);
    comm::append(bytes, curve.steps);
    comm::append(bytes, curve.values);
  }
  return bytes;
}

void set_measurements(ComparedRun& run, std::span<const std::byte> bytes) {
  comm::take_all(bytes, measurements_of(run));
  while (!bytes.empty()) {
    ComparedCurve& curve = run.curves[comm::take<std::string>(bytes)];
    curve.steps = comm::take<std::vector<std::int64_t>>(bytes);
    curve.values = comm::take<std::vector<double>>(bytes);
  }
}

}  // namespace mantissa::lab
