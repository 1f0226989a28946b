// The memory of a trainer that a resumable state holds.
#include <algorithm>

#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {

void Trainer::NamedMemory::read(std::size_t offset, std::span<std::byte> out) const {
  if (device != nullptr) return device->download(out, bytes.data() + offset);
  std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
}

void Trainer::NamedMemory::write(std::size_t offset, std::span<const std::byte> in) const {
  if (device != nullptr) return device->upload(bytes.data() + offset, in);
  std::ranges::copy(in, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
}

std::vector<Trainer::NamedMemory> Trainer::state_memory() {
  std::vector<NamedMemory> all;
  const auto add = [&](std::string name, const plan::Buffer& b, std::byte* data) {
    const std::size_t bytes = static_cast<std::size_t>(b.shape.count()) * bytes_of(b.type);
    all.push_back({.name = std::move(name),
                   .type = b.type,
                   .shape = b.shape.sizes(),
                   .bytes = {data, bytes},
                   .device = device_.host_pointer(data) == nullptr ? &device_ : nullptr,
                   .begins_at_zero = b.random == RandomUse::compensation});
  };
  const plan::Program& update = update_->program();
  for (std::size_t i = 0; i < program().slots.size(); ++i) {
    if (program().slots[i].fixed) continue;  // read again from its file
    const plan::Buffer& master = program().buffer(program().slots[i].master_buffer);
    if (master.quants) continue;  // recomputed from the model's files
    add("master." + master.name, master, static_cast<std::byte*>(weights_->master(i).data));
    for (const Update::State& state : update_->states()) {
      const plan::Buffer& b = update.buffer(state.buffer);
      if (b.slot == static_cast<std::int32_t>(i)) add(b.name, b, state.data);
    }
  }
  for (CarriedStates::State& s : carried_.all())
    all.push_back({.name = "carried." + s.name, .type = s.type, .shape = s.shape, .bytes = s.bytes});
  runtime::Scales& scales = weights_->scales();
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::span<float> history = scales.history(i);
    if (history.empty()) continue;
    all.push_back({.name = "amax." + scales.slot(i).name,
                   .type = Scalar::f32,
                   .shape = {static_cast<std::int64_t>(history.size())},
                   .bytes = std::as_writable_bytes(history),
                   .begins_at_zero = true,
                   .newest_first = true});
  }
  return all;
}

}  // namespace mantissa::train
