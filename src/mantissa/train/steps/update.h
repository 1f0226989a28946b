// The end of an optimizer step: checks and clips gradients, and runs the update program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mantissa/engine/optim/gradient_norm.h"
#include "mantissa/engine/optim/update_graph.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/health.h"
#include "mantissa/engine/runtime/session.h"

namespace mantissa::train {

/// The values that one update depends on.
struct UpdateStep {
  double lr = 0;           // from the schedule
  std::int64_t t = 1;      // count of applied updates, from 1
  std::int64_t step = 0;   // count of attempted updates: a key of stochastic rounding
  std::uint64_t seed = 0;  // for stochastic rounding
  double loss_scale = 1;   // factor of the gradients
  double max_grad_norm = 0;
  bool checks = true;  // false: the update runs even if gradients or weights are then not finite
};

/// A weight that an update would make inf or NaN.
struct BrokenWeight {
  std::size_t slot = 0;
  Scalar interior = Scalar::f32;  // of the step that writes it
  kernels::WeightOverflow weight;
};

struct UpdateResult {
  optim::GradientCheck gradients;
  std::optional<BrokenWeight> broken{};
  bool applied = false;  // false: nothing was changed
};

/// What the ranks of a run tell each other when each updates a part of the parameters.
class UpdateShares {
 public:
  virtual ~UpdateShares() = default;
  /// Returns the memory of the sum of a slot's gradient, if that is not the program's; its data are null if
  /// another rank has it.
  virtual std::optional<Matrix> gradient(std::size_t /*slot*/) const { return std::nullopt; }
  /// Completes the norms of all gradients, of which this rank has those of its own.
  virtual void complete(std::span<kernels::GradientNorm> norms) = 0;
  /// Returns the first weight that would break on any rank.
  virtual std::optional<BrokenWeight> first(const std::optional<BrokenWeight>& own) = 0;
};

class Update {
 public:
  /// Prepares the update of the weights of training.program(), which reads `numbers`. `kept` is zeroed or
  /// restored memory of the update's memory.kept bytes. The update's values use the memory of the activations
  /// of `training` if there is room. `shares` is null if this process updates all parameters. All arguments
  /// must outlive this object.
  Update(std::span<const optim::Number> numbers, runtime::Session& training, std::byte* kept,
         UpdateShares* shares = nullptr);

  /// Runs one update: norm and finite check of all gradients; if they are finite, clipping; the check that
  /// weights stay finite; then the update program. If a check fails, nothing changes.
  /// `probe` observes it, if it is not null.
  UpdateResult apply(const UpdateStep& step, runtime::HealthProbe* probe = nullptr);

  /// Returns the gradients of all parameters.
  std::span<const optim::Gradient> gradients() const { return gradients_; }

  /// The kept states of each parameter.
  struct State {
    plan::BufferId buffer = plan::kNoBuffer;
    std::byte* data = nullptr;
  };
  std::span<const State> states() const { return states_; }
  const plan::Program& program() const { return executor_.program(); }
  runtime::Executor& executor() { return executor_; }

 private:
  void write(Matrix number, double value);
  /// Returns the norm of each gradient.
  std::vector<kernels::GradientNorm> norms();
  std::optional<BrokenWeight> find_broken(const Extent& extent);

  std::span<const optim::Number> numbers_;
  runtime::Session& training_;
  UpdateShares* shares_;
  runtime::Arena arena_;
  runtime::Executor executor_;
  std::vector<optim::Gradient> gradients_;
  std::vector<std::size_t> slots_;  // by gradient
  std::vector<bool> reads_;         // by gradient: this rank's update reads it
  std::vector<State> states_;
};

}  // namespace mantissa::train
