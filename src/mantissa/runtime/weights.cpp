#include "mantissa/runtime/weights.h"

#include <cassert>

#include "mantissa/kernels/update.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/numeric/round.h"

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

void WeightSet::refresh_copies(const kernels::Context& ctx) {
  for (std::size_t i = 0; i < program_->slots.size(); ++i) {
    const Slot& slot = program_->slots[i];
    for (std::size_t c = 0; c < slot.copies.size(); ++c) {
      kernels::cast(ctx, slot.shape.count(), master(i).data, slot.master, copy(i, c).data, copy(i, c).type);
    }
  }
}

}  // namespace mantissa::runtime
