// The scales of tensors stored in 8 or 4 bits. They are constant within an optimizer step and computed from
// the largest magnitudes of earlier steps.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::runtime {

class Scales {
 public:
  /// Creates the scales of all programs. Tensors with the same name share a scale.
  explicit Scales(std::span<const plan::Program* const> programs);

  std::size_t size() const { return slots_.size(); }
  const plan::ScaleSlot& slot(std::size_t i) const { return slots_[i]; }
  TensorScale& scale(std::size_t i) { return scales_[i]; }
  /// Returns the scale of this name, or null.
  TensorScale* find(std::string_view name);

  /// Sets whether the magnitudes of the following runs are recorded.
  void record(bool on);
  /// Drops the magnitudes recorded since the last step, such as those of weights that are replaced.
  void forget();
  /// Ends an optimizer step: appends the recorded magnitudes to the histories and computes the next step's
  /// scales.
  void end_step();
  /// Copies the histories of tensors that `other` also has.
  void take_histories(const Scales& other);
  /// Returns the largest magnitude of each history that determines a scale, by tensor and element, such as
  /// "model.layers.0.mlp.up_proj.weight:e4m3". Excludes gradients, whose magnitudes depend on the batch and
  /// the loss scale.
  std::map<std::string, float> magnitudes() const;
  /// Starts the histories of existing tensors with these magnitudes and computes their scales.
  void begin_with(const std::map<std::string, float>& magnitudes);
  /// Computes the scales from the histories, as end_step() does.
  void refresh();
  /// Returns the largest magnitudes of slot i in earlier steps, the last one first, 0 before the first step.
  /// Empty if its scale is current. Part of a resumable state.
  std::span<float> history(std::size_t i);

 private:
  std::vector<plan::ScaleSlot> slots_;
  std::vector<TensorScale> scales_;
  std::vector<std::vector<float>> histories_;
};

}  // namespace mantissa::runtime
