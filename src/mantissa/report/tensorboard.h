// TensorBoard event files: the scalars and histograms of a run, written as TensorBoard's own library would.
//
// A file is a sequence of records in TFRecord framing (length, its masked crc32c, bytes, their masked
// crc32c), each an Event in protobuf's wire format.
// https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "mantissa/core/disk/append_file.h"
#include "mantissa/core/numeric/distribution.h"
#include "mantissa/report/metrics.h"

namespace mantissa::report {

/// Returns the CRC-32C (Castagnoli polynomial, reflected) of `bytes`. RFC 3720, appendix B.4.
std::uint32_t crc32c(std::string_view bytes);

/// Returns one TFRecord that contains `payload`.
std::string tf_record(std::string_view payload);

/// Returns an Event with scalars of one step. `wall_time` is in seconds since 1970.
std::string scalar_event(double wall_time, std::int64_t step,
                         std::span<const std::pair<std::string_view, double>> scalars);

/// A distribution and its tag. None may be empty.
using TaggedDistribution = std::pair<std::string, const Distribution*>;

/// Returns an Event with histograms of one step. Buckets are the powers of two of either sign between the
/// smallest and the largest magnitude; zeros have a bucket between them.
std::string histogram_event(double wall_time, std::int64_t step,
                            std::span<const TaggedDistribution> histograms);

/// Returns a name for a new event file in `directory`.
std::string new_event_file(const std::filesystem::path& directory);

/// Returns true for names that new_event_file() gives.
bool is_event_file(std::string_view name);

class TensorBoardWriter {
 public:
  /// Starts the event file `name` in `directory`, which is new; "": new_event_file(). Its first records make
  /// TensorBoard discard steps after `resumed_step` from earlier files of the directory. Throws FileError or
  /// ResourceError if that fails.
  explicit TensorBoardWriter(const std::filesystem::path& directory, std::int64_t resumed_step = 0,
                             const std::string& name = "");

  /// Writes loss, grad_norm, lr, tokens_per_second, loss_scale if there is one, the metrics of the objective,
  /// and `health` (report/health.h).
  void write(const StepMetrics& metrics, std::span<const std::pair<std::string, double>> health = {});
  /// Writes histograms of one step.
  void write_histograms(std::int64_t step, std::span<const TaggedDistribution> histograms);
  /// Writes validation_loss.
  void write_scalar(std::int64_t step, std::string_view name, double value);
  /// Returns when all records are on the disk.
  void sync() { file_.sync(); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  disk::AppendFile file_;
};

}  // namespace mantissa::report
