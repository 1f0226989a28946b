// Collects what the observed steps of a run showed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <tuple>
#include <vector>

#include "mantissa/lab/audit/audit.h"
#include "mantissa/runtime/observer.h"
#include "mantissa/train/trainer.h"

namespace mantissa::lab {

class Record {
 public:
  explicit Record(Audit& audit) : audit_(audit) {}

  void add_step(const train::StepReport& step);
  /// Adds the values of an observed step.
  void add_values(std::int64_t step, const plan::Program& program,
                  const std::vector<runtime::ObservedValue>& values);

 private:
  ValueSeries& series_of(const plan::Program& program, const runtime::ObservedValue& value);

  Audit& audit_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::size_t> series_;
};

/// Returns the steps before `first` in the metrics.jsonl of a run directory; none without that file. Throws
/// FileError if it is not a file of metrics.
std::vector<StepPoint> earlier_points(const std::filesystem::path& run, std::int64_t first);

}  // namespace mantissa::lab
