// The weights that an optimizer declares for evaluation (engine/graph/weight_states.h): averages, which
// validation and the saved model read in place of the weights in training.
#pragma once

#include <functional>
#include <vector>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {

/// Copies the weights of `weights` into the states of `update` that start at them.
void start_weight_states(const Update& update, const runtime::WeightSet& weights);

/// While this exists, the masters of a trainer are its averages, rounded to nearest in their format.
/// Afterwards both are as before, bit for bit. Without averages it does nothing. If ranks share the weights,
/// each exchanges those that it owns.
class EvaluationWeights {
 public:
  /// `memory` is state_memory() of the trainer. `changed` is called after the masters have changed, here and
  /// in the destructor, to compute what depends on them.
  EvaluationWeights(std::vector<Trainer::NamedMemory> memory, const runtime::Device& device,
                    std::function<void()> changed);
  ~EvaluationWeights();
  EvaluationWeights(const EvaluationWeights&) = delete;
  EvaluationWeights& operator=(const EvaluationWeights&) = delete;

 private:
  /// An average of the format of its master exchanges places with it. Otherwise the master is kept aside.
  struct Pair {
    const Trainer::NamedMemory *master = nullptr, *average = nullptr;
    std::vector<std::byte> aside = {};
  };
  void exchange(const Pair& pair) const;
  void round(Pair& pair) const;

  std::vector<Trainer::NamedMemory> memory_;
  const runtime::Device& device_;
  std::function<void()> changed_;
  std::vector<Pair> pairs_;
  bool any_ = false;  // averages, of this rank or another
};

}  // namespace mantissa::train
