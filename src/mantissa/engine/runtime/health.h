// The numeric health of a training step: for each parameter, what the roundings of gradients and updates
// lost. Observing changes no value.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/core/numeric/distribution.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::runtime {

/// The distributions of a parameter and its gradient in a step.
struct ParameterDistributions {
  Distribution gradient;  // unscaled, before clipping
  Distribution weight;    // after the update
};

/// The figures of one parameter after an optimizer step. Shares are of its elements.
struct HealthFigures {
  std::int64_t elements = 0;
  Scalar master = Scalar::f32;
  bool vector = false;      // one dimension: gains and biases
  double updates_lost = 0;  // whose update was not zero without weight decay, and whose stored weight stayed
                            // as it was
  /// Under `kahan`: whose compensation stayed as it was in this step, too.
  std::optional<double> compensation_stayed{};
  double updates_zero = 0;     // whose update was zero without weight decay, and whose stored weight stayed
  double grads_flushed = 0;    // gradients that became zero when rounded to their format
  double grads_saturated = 0;  // finite gradients beyond the range of their format
  // The same two shares of the roundings of sums over shards; null if these do not round:
  std::optional<double> reduce_flushed{}, reduce_saturated{};
  double grad_absmax = 0;               // unscaled, before clipping
  double weight_absmax = 0;             // after the update
  std::optional<double> never_moved{};  // equal to the start of the run; null: not known
  // Of a copy in 8 bits or in blocks:
  std::optional<double> saturated{};  // beyond the range of its format under its scales
  std::optional<double> scale{};      // of the tensor, if it has one
  // Of a copy in blocks:
  std::optional<double> vanished{};                   // not zero, but zero in the copy
  std::optional<double> least_scale{}, most_scale{};  // of blocks that are not zero
};

/// One parameter after an optimizer step.
struct ParameterHealth : HealthFigures {
  std::string name;
  std::shared_ptr<const ParameterDistributions> distributions{};  // null: not measured
};

/// Returns how many elements of a slot's master equal those of the start of the run, or null if that is not
/// known.
using CountUnchanged = std::function<std::optional<std::int64_t>(const plan::Slot& slot, ConstMatrix master)>;

/// The factor of weight decay among the numbers that an update reads, and its value without decay.
struct DecayNumber {
  std::string name;
  double undecayed = 1;
};

/// Observes one optimizer step. Create it before the step's first micro-batch, and destroy it before the
/// sessions.
class HealthProbe : private StepObserver {
 public:
  /// Observes the gradients of `training`. Measures distributions if `distributions` is set.
  explicit HealthProbe(Session& training, bool distributions = false);
  ~HealthProbe() override;
  HealthProbe(const HealthProbe&) = delete;
  HealthProbe& operator=(const HealthProbe&) = delete;

  /// Measures gradients, which were multiplied by `loss_scale`, and the copies under scales. Call it when the
  /// gradients are complete: `gradients` has them by slot, without data for those that are not updated here.
  /// Then observes `update`, whose next run updates the weights. `decays` are its factors of weight decay.
  void observe_update(Executor& update, std::span<const Matrix> gradients, double loss_scale,
                      std::vector<DecayNumber> decays);

  /// The gradients that were rounded while they were computed, by slot: their number, and what that lost.
  struct Rounded {
    double count = 0;
    kernels::RangeCount lost;
  };
  std::vector<Rounded> rounded() const;
  /// Replaces them by those of all ranks, before the gradients are measured.
  void set_rounded(std::vector<Rounded> all) { rounded_ = std::move(all); }

  /// Returns the health of every parameter that the update changed, in the order of the slots.
  std::vector<ParameterHealth> finish(const CountUnchanged& unchanged);

 private:
  struct Seen {
    ParameterHealth health;
    double rounded = 0;                             // gradients that were rounded, over all micro-batches
    std::unique_ptr<kernels::RangeCounter> losses;  // of these
    bool updated = false;
    std::shared_ptr<ParameterDistributions> distributions = {};
  };
  void before(const plan::Step& step, graph::Call& call) override;
  void after(const plan::Step& step, const graph::Call& call) override;
  void see_gradient(const plan::Step& step, graph::Call& call);
  void see_update(const plan::Step& step, const graph::Call& call);
  void measure_copies(std::size_t slot);
  void measure_blocks(std::size_t slot, plan::BufferId copy, const TensorScale* scale);

  Session& training_;
  bool distributions_;
  Executor* update_ = nullptr;
  std::vector<DecayNumber> decays_;
  std::vector<Seen> seen_;               // by slot
  std::vector<Rounded> rounded_;         // by slot; empty: those that were seen
  std::vector<std::byte> compensation_;  // of the parameter that an update writes, before it
};

}  // namespace mantissa::runtime
