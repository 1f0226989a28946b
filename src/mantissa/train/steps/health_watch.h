// What the roundings of a whole run lost, as warnings with cures, from the health of its measured steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/runtime/health.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {

/// The shares above which a loss is reported.
struct HealthLimits {
  double updates_lost = 0.5;   // of the updates that were not zero
  double grads_flushed = 0.1;  // of the gradients
  double saturated = 0.01;     // of the gradients, or of a scaled copy
  double beyond = 1e-4;        // of a copy without a scale: a matrix may have one row that is too large
  double in_blocks = 0.05;  // saturated in a copy in blocks: scales that are powers of two saturate up to 1 %
  double vanished = 0.5;    // of a copy in blocks: of normal weights, mxfp4 loses up to 10 %
};

/// A loss of several parameters.
struct HealthFinding {
  std::string kind;                         // "rounded_away", "underflow", "saturation"
  std::string op;                           // "matmul", "gradient", "reduce", "update"
  std::string pass;                         // "forward", "backward", "update"
  std::string worst;                        // the parameter that loses the largest share
  double share = 0;                         // of the elements of all these parameters
  Warning warning;                          // one sentence, with cures
  double worst_share = 0;                   // of `worst`
  double absmax = 0, gradient = 0, lr = 0;  // the largest weight and gradient, and the highest rate
  std::int64_t first = 0, last = 0;         // measured steps of the part of the run
  Scalar master = Scalar::f32, arithmetic = Scalar::f32;
  bool vectors = false;
  std::vector<std::string> names = {};  // of the parameters
};

/// The number of a part of a run: steps of one stage with one program (programs::RunPart).
struct PartNumber {
  std::size_t stage = 0, part = 0;
  friend bool operator==(const PartNumber&, const PartNumber&) = default;
};

/// Observes the steps of a run in order.
class HealthWatch {
 public:
  explicit HealthWatch(const precision::Policy& policy, HealthLimits limits = {})
      : policy_(policy), limits_(limits) {}

  /// Measurements at a learning rate below half of the highest one of the stage are not used for lost
  /// updates: in the warm-up and at the end of a schedule, updates are small on purpose.
  void see(const StepReport& step, const PartNumber& part = {});

  /// Returns the findings of all steps so far; none for a healthy run. Each part of the run is judged alone;
  /// of the same finding in several parts, the largest is returned. Parameters with the same finding and the
  /// same name in several layers are one finding.
  std::vector<HealthFinding> findings();

 private:
  struct Sums {
    runtime::ParameterHealth last{};
    double lost = 0, moving = 0;  // elements with updates, over the steps at a high learning rate
    double flushed = 0, saturated = 0, beyond = 0, vanished = 0;
    double reduce_flushed = 0, reduce_saturated = 0;
    std::int64_t steps = 0;
  };
  struct PartSums {
    PartNumber place{};
    std::int64_t first = 0, last = 0;  // measured steps
    double lr = 0;                     // the highest
    std::vector<Sums> parameters{};
  };
  /// Parameters with the same finding, in one format, either vectors or matrices.
  struct Found {
    Scalar master = Scalar::f32;
    Scalar arithmetic = Scalar::f32;  // of the update
    bool vectors = false;
    std::vector<std::string> names;
    double part = 0, of = 0;          // elements
    double never = 0, counted = 0;    // elements that never moved, and those for which that is known
    double absmax = 0, gradient = 0;  // the largest weight and gradient
    std::string worst = {};
    double worst_share = 0;
  };
  HealthFinding finding(const Found& found, std::string kind, std::string op, std::string pass,
                        std::string text, std::vector<Cure> cures) const;
  /// Returns "the 13 vectors model.layers.*.input_layernorm.weight, model.norm.weight".
  static std::string who(const Found& found);
  /// Adds `p` to its group, a new one if there is none, and returns the group.
  Found& add(std::vector<Found>& found, const runtime::ParameterHealth& p, double share) const;
  /// Returns the names of the parameters with masters in a format.
  std::vector<std::string> with_format(Scalar master) const;
  /// Returns the parameters whose mean share loss(sums) / steps is above limit(sums).
  template <class Loss, class Limit>
  std::vector<Found> above(const Loss& loss, const Limit& limit) const;

  void find_lost(std::vector<HealthFinding>& said) const;
  void find_gradients(std::vector<HealthFinding>& said) const;
  void find_saturated(std::vector<HealthFinding>& said) const;
  void find_vanished(std::vector<HealthFinding>& said) const;

  precision::Use use_of(const std::string& name) const;

  precision::Policy policy_;
  HealthLimits limits_;
  std::vector<PartSums> parts_;
  PartSums at_;  // that findings() judges
};

/// Returns the names as patterns, each once, with "*" for numbers between dots: "model.layers.*.mlp.up_proj".
std::string patterns_of(const std::vector<std::string>& names);

}  // namespace mantissa::train
