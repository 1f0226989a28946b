// The end of an optimizer step: gradients are checked and clipped, and the update program changes the
// weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/optim/gradient_norm.h"
#include "mantissa/optim/update_graph.h"
#include "mantissa/runtime/device.h"
#include "mantissa/runtime/session.h"

namespace mantissa::train {

/// What one update depends on.
struct UpdateStep {
  double lr = 0;           // of the schedule
  std::int64_t t = 1;      // of applied updates, from 1
  std::int64_t step = 0;   // of attempted updates: a key of stochastic rounding
  std::uint64_t seed = 0;  // of stochastic rounding
  double loss_scale = 1;   // what the gradients were multiplied by
  double max_grad_norm = 0;
};

struct UpdateResult {
  optim::GradientCheck gradients;
  /// A weight that the update would make inf or nan.
  std::optional<runtime::Executor::Broken> broken{};
  /// Where not, nothing was changed.
  bool applied() const { return gradients.finite && !broken; }
};

class Update {
 public:
  /// The update of the weights of training.program(), which reads `numbers`. `kept`: zeroed or restored
  /// memory of the update's memory.kept bytes. The update's own values lie where `training` has its
  /// activations, if there is room. All must outlive this.
  Update(std::span<const optim::Number> numbers, runtime::Session& training, std::byte* kept);

  /// One update. Order: finite check and norm of all gradients → if not finite nothing is changed → clip →
  /// would all weights that may break stay finite? → the update program.
  UpdateResult apply(const UpdateStep& step);

  /// The gradients that are read.
  std::span<const optim::Gradient> gradients() const { return gradients_; }

  /// What is kept of each parameter.
  struct State {
    plan::BufferId buffer = plan::kNoBuffer;
    std::byte* data = nullptr;
  };
  std::span<const State> states() const { return states_; }
  const plan::Program& program() const { return executor_.program(); }

 private:
  void write(Matrix number, double value);

  std::span<const optim::Number> numbers_;
  runtime::Session& training_;
  runtime::Arena arena_;
  runtime::Executor executor_;
  std::vector<optim::Gradient> gradients_;
  std::vector<State> states_;
};

}  // namespace mantissa::train
