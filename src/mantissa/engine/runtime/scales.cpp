#include "mantissa/engine/runtime/scales.h"

#include <algorithm>
#include <cmath>

namespace mantissa::runtime {

Scales::Scales(std::span<const plan::Program* const> programs) {
  for (const plan::Program* program : programs) {
    for (const plan::ScaleSlot& slot : program->scales) {
      if (find(slot.name) != nullptr) continue;
      slots_.push_back(slot);
      scales_.emplace_back();
      histories_.emplace_back(static_cast<std::size_t>(slot.history));
    }
  }
}

TensorScale* Scales::find(std::string_view name) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].name == name) return &scales_[i];
  }
  return nullptr;
}

void Scales::record(bool on) {
  for (TensorScale& s : scales_) s.recording = on;
}

void Scales::forget() {
  for (TensorScale& s : scales_) s.amax = 0;
}

void Scales::end_step() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    std::vector<float>& history = histories_[i];
    if (history.empty()) continue;
    std::copy_backward(history.begin(), history.end() - 1, history.end());
    history.front() = scales_[i].amax;
    scales_[i].amax = 0;
  }
  refresh();
}

void Scales::take_histories(const Scales& other) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    for (std::size_t j = 0; j < other.slots_.size(); ++j) {
      if (slots_[i].name != other.slots_[j].name) continue;
      const std::size_t n = std::min(histories_[i].size(), other.histories_[j].size());
      std::copy_n(other.histories_[j].begin(), n, histories_[i].begin());
    }
  }
  refresh();
}

std::map<std::string, float> Scales::magnitudes() const {
  std::map<std::string, float> all;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::vector<float>& history = histories_[i];
    const std::string_view name = kept_magnitude(slots_[i].name);
    if (history.empty() || name.empty()) continue;
    const float amax = *std::max_element(history.begin(), history.end());
    if (!(amax > 0) || !std::isfinite(amax)) continue;
    float& kept = all[std::string(name)];
    kept = std::max(kept, amax);
  }
  return all;
}

void Scales::begin_with(const std::map<std::string, float>& magnitudes) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::string_view name = kept_magnitude(slots_[i].name);
    const auto found = magnitudes.find(std::string(name));
    if (!histories_[i].empty() && !name.empty() && found != magnitudes.end())
      histories_[i].front() = found->second;
  }
  refresh();
}

void Scales::refresh() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::vector<float>& history = histories_[i];
    if (history.empty()) continue;
    const plan::ScaleSlot& slot = slots_[i];
    set_scale(scales_[i], slot.nvfp4, slot.element, *std::max_element(history.begin(), history.end()),
              slot.margin);
  }
}

std::span<float> Scales::history(std::size_t i) {
  return histories_[i];
}

}  // namespace mantissa::runtime
