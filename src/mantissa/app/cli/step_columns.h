// The columns of a run's table of steps.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/api/mantissa.h"

namespace mantissa::cli {

/// Returns "2^16", or the number if it is not a power of two.
std::string power_text(double scale);

/// Returns "1:02:03", or "2:03" below an hour.
std::string clock_text(double seconds);

/// Chooses the columns by the first step. Reinforcement learning has those of its rollout in place of the
/// loss, which says little there; a step without a rollout of its own shows the last one's.
class StepColumns {
 public:
  explicit StepColumns(const api::Step& first);

  std::string headings() const;
  /// Returns the values of a step, right-aligned under headings(). "–" stands for a measurement that no step
  /// had.
  std::string row(const api::Step& step);

 private:
  struct Column {
    std::string_view metric;  // in metrics.jsonl
    std::string_view heading;
    int width;
    enum class As { share, tokens, number, small } as;
    std::optional<double> value = {};  // the last
  };
  static std::string text_of(const Column& column);

  bool online_;  // reinforcement learning
  bool scales_;
  std::vector<Column> columns_;
};

}  // namespace mantissa::cli
