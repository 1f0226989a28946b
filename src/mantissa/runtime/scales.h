// The scales of tensors that are stored in 8 or 4 bits: frozen for an optimizer step, made from the largest
// magnitudes of the steps before it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/plan/program.h"

namespace mantissa::runtime {

class Scales {
 public:
  /// The scales of all programs; tensors of one name share one.
  explicit Scales(std::span<const plan::Program* const> programs);

  std::size_t size() const { return slots_.size(); }
  const plan::ScaleSlot& slot(std::size_t i) const { return slots_[i]; }
  TensorScale& scale(std::size_t i) { return scales_[i]; }
  /// The one of this name; null where there is none.
  TensorScale* find(std::string_view name);

  /// Whether the magnitudes of what runs now are kept.
  void record(bool on);
  /// At the end of an optimizer step: what was seen joins the histories, and the next step's scales follow.
  void end_step();
  /// The histories of tensors that `other` has, too.
  void take_histories(const Scales& other);
  /// The largest magnitude of each history by its tensor and element, as in
  /// "model.layers.0.mlp.up_proj.weight:e4m3", where there is one that makes a scale. Those of gradients are
  /// left out: they go with the batch and the loss scale.
  std::map<std::string, float> magnitudes() const;
  /// Histories that begin with these, where a tensor has one here; the scales follow.
  void begin_with(const std::map<std::string, float>& magnitudes);
  /// Scales from the histories, as after end_step().
  void refresh();
  /// The largest magnitudes of slot i in earlier steps, the last one first, 0 before the first; empty where
  /// its scale is current. A resumable state holds it.
  std::span<float> history(std::size_t i);

 private:
  std::vector<plan::ScaleSlot> slots_;
  std::vector<TensorScale> scales_;
  std::vector<std::vector<float>> histories_;
};

}  // namespace mantissa::runtime
