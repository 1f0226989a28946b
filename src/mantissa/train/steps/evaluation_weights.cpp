#include "mantissa/train/steps/evaluation_weights.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "mantissa/engine/graph/weight_states.h"
#include "mantissa/files/io/state_weights.h"
#include "mantissa/kernels/update.h"

namespace mantissa::train {
namespace {

static_assert(graph::kAveragePrefix == io::kStateAverages);  // readers of states find them by it

constexpr std::size_t kPart = std::size_t{1} << 18;  // elements that are copied at once

}  // namespace

void start_weight_states(const Update& update, const runtime::WeightSet& weights) {
  const plan::Program& program = update.program();
  const runtime::Device& device = weights.device();
  std::vector<std::byte> staging, values;
  for (const Update::State& state : update.states()) {
    const plan::Buffer& b = program.buffer(state.buffer);
    if (!graph::starts_at_weight(b.random)) continue;
    const auto slot = static_cast<std::size_t>(b.slot);
    const Scalar master = program.slots[slot].master;
    const auto count = static_cast<std::size_t>(b.shape.count());
    for (std::size_t first = 0; first < count; first += kPart) {
      const std::size_t n = std::min(kPart, count - first);
      const std::span<const std::byte> from =
          weights.view_master(slot, first * bytes_of(master), n * bytes_of(master), staging);
      values.resize(n * bytes_of(b.type));
      kernels::cast(device.host(), static_cast<std::int64_t>(n), from.data(), master, values.data(), b.type);
      device.upload(state.data + first * bytes_of(b.type), values);
    }
  }
}

EvaluationWeights::EvaluationWeights(std::vector<Trainer::NamedMemory> memory, const runtime::Device& device,
                                     std::function<void()> changed)
    : memory_(std::move(memory)), device_(device), changed_(std::move(changed)) {
  for (const Trainer::NamedMemory& m : memory_) {
    if (!m.name.starts_with(graph::kAveragePrefix)) continue;
    any_ = true;
    if (!m.here()) continue;
    const std::string master = "master." + m.name.substr(graph::kAveragePrefix.size());
    pairs_.push_back({&*std::ranges::find(memory_, master, &Trainer::NamedMemory::name), &m});
  }
  for (Pair& pair : pairs_) pair.master->type == pair.average->type ? exchange(pair) : round(pair);
  if (any_) changed_();
}

EvaluationWeights::~EvaluationWeights() {
  for (const Pair& pair : pairs_) {
    if (pair.aside.empty()) {
      exchange(pair);
    } else {
      pair.master->write(0, pair.aside);
    }
  }
  if (!any_) return;
  try {
    changed_();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks have ended
  }
}

std::unique_ptr<EvaluationWeights> Trainer::evaluation_weights() {
  const auto changed = [this, magnitudes = std::vector<float>()]() mutable {
    runtime::Scales& scales = weights_->scales();
    const bool ends = !magnitudes.empty();
    for (std::size_t i = 0; !ends && i < scales.size(); ++i) magnitudes.push_back(scales.scale(i).amax);
    weights_->refresh_copies();
    send_weights();
    for (std::size_t i = 0; i < magnitudes.size(); ++i) scales.scale(i).amax = magnitudes[i];
  };
  return std::make_unique<EvaluationWeights>(state_memory(), device_, changed);
}

void EvaluationWeights::exchange(const Pair& pair) const {
  const std::size_t size = pair.master->bytes.size(), part = kPart * sizeof(float);
  std::vector<std::byte> a, b;
  for (std::size_t first = 0; first < size; first += part) {
    a.resize(std::min(part, size - first));
    b.resize(a.size());
    pair.master->read(first, a);
    pair.average->read(first, b);
    pair.master->write(first, b);
    pair.average->write(first, a);
  }
}

void EvaluationWeights::round(Pair& pair) const {
  const Scalar from = pair.average->type, to = pair.master->type;
  const std::size_t count = pair.master->bytes.size() / bytes_of(to);
  pair.aside.resize(pair.master->bytes.size());
  pair.master->read(0, pair.aside);
  std::vector<std::byte> wide, rounded;
  for (std::size_t first = 0; first < count; first += kPart) {
    const std::size_t n = std::min(kPart, count - first);
    wide.resize(n * bytes_of(from));
    rounded.resize(n * bytes_of(to));
    pair.average->read(first * bytes_of(from), wide);
    kernels::cast(device_.host(), static_cast<std::int64_t>(n), wide.data(), from, rounded.data(), to);
    pair.master->write(first * bytes_of(to), rounded);
  }
}

}  // namespace mantissa::train
