#include "mantissa/runtime/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "mantissa/base/error.h"
#include "mantissa/kernels/quantize.h"
#include "mantissa/kernels/update.h"
#include "mantissa/numeric/normal.h"
#include "mantissa/numeric/philox.h"

namespace mantissa::runtime {

using plan::BufferId;
using plan::Slot;

namespace {

bool is_weight(const plan::Buffer& b) {
  return b.home == plan::Home::master || b.home == plan::Home::copy;
}

/// Of each buffer, whether it is a weight that a step reads.
std::vector<bool> read_weights(const plan::Program& program) {
  std::vector<bool> read(program.buffers.size(), false);
  const auto see = [&](BufferId id) {
    if (id == plan::kNoBuffer || !is_weight(program.buffer(id))) return;
    const plan::Buffer& b = program.buffer(id);
    read[static_cast<std::size_t>(id)] = true;
    // A copy under scales is made from its master.
    if (b.quantization)
      read[static_cast<std::size_t>(program.slots[static_cast<std::size_t>(b.slot)].master_buffer)] = true;
  };
  for (const plan::Step& s : program.steps) {
    for (const plan::Operand& o : s.inputs) see(o.buffer);
    see(s.addend);
  }
  return read;
}

/// Whether two copies of a weight in one format hold the same values.
bool same_blocks(const plan::Buffer& a, const plan::Buffer& b) {
  if (!a.quantization || !b.quantization) return a.quantization.has_value() == b.quantization.has_value();
  return a.quantization->blocks == b.quantization->blocks &&
         a.quantization->along_rows == b.quantization->along_rows;
}

}  // namespace

std::size_t read_weight_bytes(const plan::Program& program) {
  const std::vector<bool> read = read_weights(program);
  std::size_t bytes = 0;
  for (std::size_t b = 0; b < read.size(); ++b) bytes += read[b] ? aligned(program.buffers[b].bytes) : 0;
  return bytes;
}

WeightSet::WeightSet(const plan::Program& program)
    : program_(&program),
      scales_(std::make_unique<Scales>(program)),
      storage_(program.memory.weights()),
      places_(program.buffers.size(), nullptr) {
  for (std::size_t b = 0; b < places_.size(); ++b) {
    if (is_weight(program.buffers[b])) places_[b] = storage_.data() + program.buffers[b].offset;
  }
}

WeightSet::WeightSet(const plan::Program& program, std::vector<View> views)
    : program_(&program),
      scales_(std::make_unique<Scales>(program)),
      views_(std::move(views)),
      places_(program.buffers.size(), nullptr) {
  scales_->record(false);
  std::vector<bool> own = read_weights(program);
  for (const View& v : views_) {
    own[static_cast<std::size_t>(v.buffer)] = false;
    places_[static_cast<std::size_t>(v.buffer)] = const_cast<std::byte*>(v.data);
  }
  std::size_t bytes = 0;
  for (std::size_t b = 0; b < own.size(); ++b) bytes += own[b] ? aligned(program.buffers[b].bytes) : 0;
  storage_ = Storage(bytes);
  std::byte* next = storage_.data();
  for (std::size_t b = 0; b < own.size(); ++b) {
    if (!own[b]) continue;
    places_[b] = next;
    next += aligned(program.buffers[b].bytes);
  }
}

std::byte* WeightSet::at(const plan::Program& program, BufferId id) const {
  const plan::Buffer& wanted = program.buffer(id);
  const Slot& slot = program_->slots.at(static_cast<std::size_t>(wanted.slot));
  BufferId mine = wanted.home == plan::Home::master ? slot.master_buffer : plan::kNoBuffer;
  for (const BufferId c : slot.copies) {
    if (wanted.home == plan::Home::copy && program_->buffer(c).type == wanted.type &&
        same_blocks(program_->buffer(c), wanted))
      mine = c;
  }
  if (mine == plan::kNoBuffer || !has(mine)) {
    throw InternalError(fmt::format(
        "the weight set has no \"{}\": it was made for a program with other slots or formats", wanted.name));
  }
  return places_[static_cast<std::size_t>(mine)];
}

Matrix WeightSet::matrix(BufferId id) const {
  const plan::Buffer& b = program_->buffer(id);
  if (!has(id)) throw InternalError(fmt::format("no step of the program reads weight \"{}\"", b.name));
  return {places_[static_cast<std::size_t>(id)], b.type, b.shape.last()};
}

Matrix WeightSet::master(std::size_t slot) const {
  return matrix(program_->slots.at(slot).master_buffer);
}

Matrix WeightSet::copy(std::size_t slot, std::size_t c) const {
  return matrix(program_->slots.at(slot).copies.at(c));
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
      switch (slot.init.kind) {
        case graph::Init::Kind::zeros:
          values.fill(0);
          break;
        case graph::Init::Kind::ones:
          values.fill(1);
          break;
        case graph::Init::Kind::normal:
          normal_row(stream, static_cast<std::uint64_t>(from), static_cast<std::size_t>(n), values.data(),
                     kernels::simd_target(ctx.simd));
          for (double& x : std::span(values).first(static_cast<std::size_t>(n))) x *= slot.init.std;
          break;
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
      if (program_->buffer(slot.copies[c]).quantization) continue;
      kernels::cast(ctx, slot.shape.count(), master(i).data, slot.master, copy(i, c).data, copy(i, c).type);
    }
  }
  quantize_copies(ctx);
}

void WeightSet::quantize_copies(const kernels::Context& ctx) {
  for (std::size_t i = 0; i < program_->slots.size(); ++i) {
    for (const BufferId c : program_->slots[i].copies) {
      const plan::Buffer& b = program_->buffer(c);
      if (!b.quantization || !has(c)) continue;
      const plan::ScaleSlot* slot =
          b.quantization->scale < 0 ? nullptr
                                    : &program_->scales.at(static_cast<std::size_t>(b.quantization->scale));
      const kernels::Quantize how{.blocks = b.quantization->blocks,
                                  .along_rows = b.quantization->along_rows,
                                  .packed = b.layout().blocks.has_value(),
                                  .current = slot != nullptr && slot->current,
                                  .margin = slot != nullptr ? slot->margin : 0};
      kernels::quantize(ctx, b.shape.leading(), b.shape.last(), master(i), matrix(c), how,
                        slot == nullptr ? nullptr : scale(*program_, b.quantization->scale));
    }
  }
}

TensorScale* WeightSet::scale(const plan::Program& program, std::int32_t i) const {
  if (&program == program_) return &scales_->scale(static_cast<std::size_t>(i));
  return scales_->find(program.scales.at(static_cast<std::size_t>(i)).name);
}

}  // namespace mantissa::runtime
