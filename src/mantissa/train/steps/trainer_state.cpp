// The memory of a trainer that a resumable state holds.
#include <algorithm>

#include "mantissa/files/io/state.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {

void Trainer::NamedMemory::read(std::size_t offset, std::span<std::byte> out) const {
  if (remote) return remote(offset, out);
  if (device != nullptr) return device->download(out, bytes.data() + offset);
  std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
}

void Trainer::NamedMemory::write(std::size_t offset, std::span<const std::byte> in) const {
  if (device != nullptr) return device->upload(bytes.data() + offset, in);
  std::ranges::copy(in, bytes.begin() + static_cast<std::ptrdiff_t>(offset));
}

std::byte* Trainer::kept_memory(const plan::Buffer& state) const {
  const plan::Program& own = update_->program();
  for (const Update::State& s : update_->states()) {
    if (own.buffer(s.buffer).name == state.name) return s.data;
  }
  return nullptr;
}

std::vector<Trainer::NamedMemory> Trainer::state_memory() {
  std::vector<NamedMemory> all;
  const auto add_part = [&](NamedMemory part, const plan::Buffer& b, std::byte* data, std::size_t bytes) {
    NamedMemory& m = all.emplace_back(std::move(part));
    m.never_negative = b.never_negative;
    m.owner = sharing().owner(static_cast<std::size_t>(b.slot));
    if (data == nullptr) {
      m.remote = [this, index = all.size() - 1, owner = m.owner](std::size_t offset,
                                                                 std::span<std::byte> out) {
        read_remote(index, owner, offset, out);
      };
      return;
    }
    m.bytes = {data, bytes};
    if (device_.host_pointer(data) == nullptr) m.device = &device_;
  };
  const auto add = [&](std::string name, const plan::Buffer& b, std::byte* data) {
    const auto count = static_cast<std::size_t>(b.shape.count());
    const BlockedState blocks{b.codes, data, count};
    if (b.codes == StateCodes::none) {
      add_part({.name = std::move(name),
                .type = b.type,
                .shape = b.shape.sizes(),
                .begins_at_zero = b.random == RandomUse::compensation},
               b, data, count * bytes_of(b.type));
      return;
    }
    add_part({.name = name + std::string(io::kStateScales),
              .shape = {static_cast<std::int64_t>(blocks.blocks())},
              .scales = true},
             b, data, blocks.codes_begin());
    add_part({.name = std::move(name),
              .type = b.codes == StateCodes::f16 ? Scalar::f16 : Scalar::e4m3,
              .shape = b.shape.sizes(),
              .codes = b.codes},
             b, data == nullptr ? nullptr : data + blocks.codes_begin(), count * bytes_of(b.codes));
  };
  const plan::Program& update = *parts_[part_].whole->update;
  for (std::size_t i = 0; i < program().slots.size(); ++i) {
    if (program().slots[i].fixed) continue;  // read again from its file
    const plan::Buffer& master = program().buffer(program().slots[i].master_buffer);
    if (master.quants) continue;  // recomputed from the model's files
    add("master." + master.name, master,
        weights_->has(program().slots[i].master_buffer) ? static_cast<std::byte*>(weights_->master(i).data)
                                                        : nullptr);
    for (const plan::Buffer& b : update.buffers) {
      if (b.home == plan::Home::kept && b.slot == static_cast<std::int32_t>(i))
        add(b.name, b, kept_memory(b));
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

namespace {

/// A part of state_memory() that the first rank reads.
struct Read {
  static constexpr std::uint64_t kEnd = ~std::uint64_t{0};
  std::uint64_t index = kEnd, offset = 0, size = 0;
};

}  // namespace

void Trainer::read_remote(std::size_t index, int owner, std::size_t offset, std::span<std::byte> out) {
  Read read{index, offset, out.size()};
  ranks_.broadcast(std::as_writable_bytes(std::span(&read, 1)));
  ranks_.run([&](comm::Messages& m) {
    m.receive(owner, out);
    m.complete();
  });
}

void Trainer::end_reading() {
  Read read;
  ranks_.broadcast(std::as_writable_bytes(std::span(&read, 1)));
}

void Trainer::serve_reads() {
  const std::vector<NamedMemory> memory = state_memory();
  std::vector<std::byte> bytes;
  while (true) {
    Read read;
    ranks_.broadcast(std::as_writable_bytes(std::span(&read, 1)));
    if (read.index == Read::kEnd) return;
    const NamedMemory& m = memory.at(read.index);
    if (!m.here()) continue;
    bytes.resize(read.size);
    m.read(read.offset, bytes);
    ranks_.run([&](comm::Messages& messages) {
      messages.send(0, bytes);
      messages.complete();
    });
  }
}

}  // namespace mantissa::train
