#include "mantissa/runtime/weights.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "mantissa/kernels/update.h"
#include "mantissa/numeric/philox.h"

namespace mantissa::runtime {

using plan::BufferId;
using plan::Slot;

WeightSet::WeightSet(const plan::Program& program) : program_(&program), storage_(program.memory.weights()) {}

std::byte* WeightSet::at(const plan::Program& program, BufferId id) const {
  const plan::Buffer& wanted = program.buffer(id);
  const Slot& slot = program_->slots.at(static_cast<std::size_t>(wanted.slot));
  BufferId mine = wanted.home == plan::Home::master ? slot.master_buffer : plan::kNoBuffer;
  for (const BufferId c : slot.copies) {
    if (wanted.home == plan::Home::copy && program_->buffer(c).type == wanted.type) mine = c;
  }
  assert(mine != plan::kNoBuffer && "the weight set was made for a program with other slots or formats");
  return storage_.data() + program_->buffer(mine).offset;
}

Matrix WeightSet::master(std::size_t slot) const {
  const plan::Buffer& b = program_->buffer(program_->slots.at(slot).master_buffer);
  return {storage_.data() + b.offset, b.type, b.shape.last()};
}

Matrix WeightSet::copy(std::size_t slot, std::size_t c) const {
  const plan::Buffer& b = program_->buffer(program_->slots.at(slot).copies.at(c));
  return {storage_.data() + b.offset, b.type, b.shape.last()};
}

void WeightSet::initialise(std::uint64_t seed, const kernels::Context& ctx) {
  constexpr std::int64_t kPart = 4096;
  for (std::size_t i = 0; i < program_->slots.size(); ++i) {
    const Slot& slot = program_->slots[i];
    const RandomStream stream(seed, RandomUse::initial_weights, hash_name(slot.name), 0);
    const Matrix to = master(i);
    const std::int64_t count = slot.shape.count();
    kernels::parallel_for(ctx, (count + kPart - 1) / kPart, [&](std::int64_t part, int) {
      std::array<double, kPart> values;
      const std::int64_t from = part * kPart;
      const std::int64_t n = std::min(kPart, count - from);
      for (std::int64_t e = 0; e < n; ++e) {
        double& x = values[static_cast<std::size_t>(e)];
        switch (slot.init.kind) {
          case graph::Init::Kind::zeros:
            x = 0;
            break;
          case graph::Init::Kind::ones:
            x = 1;
            break;
          case graph::Init::Kind::normal:
            x = slot.init.std * normal(stream, static_cast<std::uint64_t>(from + e));
            break;
        }
      }
      auto* at = static_cast<std::byte*>(to.data) + static_cast<std::size_t>(from) * bytes_of(to.type);
      kernels::cast({.simd = ctx.simd}, n, values.data(), Scalar::f64, at, to.type);
    });
  }
  refresh_copies(ctx);
}

void WeightSet::refresh_copies(const kernels::Context& ctx) {
  for (std::size_t i = 0; i < program_->slots.size(); ++i) {
    const Slot& slot = program_->slots[i];
    for (std::size_t c = 0; c < slot.copies.size(); ++c) {
      kernels::cast(ctx, slot.shape.count(), master(i).data, slot.master, copy(i, c).data, copy(i, c).type);
    }
  }
}

}  // namespace mantissa::runtime
