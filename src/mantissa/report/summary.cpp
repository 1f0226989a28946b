#include "mantissa/report/summary.h"

#include <nlohmann/json.hpp>

#include "mantissa/core/disk/atomic.h"

namespace mantissa::report {

std::string summary_json(const RunSummary& s) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();  // a non-finite value is written as null
  json["steps"] = s.steps;
  json["final_loss"] = s.final_loss;
  json["validation_loss"] = nullptr;
  if (s.validation_loss) json["validation_loss"] = *s.validation_loss;
  json["tokens"] = s.tokens;
  json["seconds"] = s.seconds;
  json["predicted_peak_bytes"] = s.predicted_peak_bytes;
  json["measured_peak_bytes"] = s.measured_peak_bytes;
  json["skipped"] = s.skipped;
  json["policy"] = s.policy;
  json["weights_xxh64"] = s.weights_xxh64;
  // A policy line may contain bytes of the command line that are not UTF-8. They must not prevent the
  // summary.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void write_summary(const std::filesystem::path& path, const RunSummary& summary) {
  disk::write_file_atomic(path, summary_json(summary));
}

}  // namespace mantissa::report
