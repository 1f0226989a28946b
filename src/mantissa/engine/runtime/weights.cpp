#include "mantissa/engine/runtime/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/sharing.h"
#include "mantissa/kernels/round_weights.h"
#include "mantissa/kernels/scaled.h"
#include "mantissa/kernels/update.h"

namespace mantissa::runtime {

using plan::BufferId;
using plan::Slot;

namespace {

bool is_weight(const plan::Buffer& b) {
  return b.home == plan::Home::master || b.home == plan::Home::copy;
}

}  // namespace

std::vector<bool> read_weights(const plan::Program& program) {
  const std::vector<bool> by_steps = plan::read_by_steps(program);
  std::vector<bool> read(program.buffers.size(), false);
  for (std::size_t i = 0; i < read.size(); ++i) {
    const plan::Buffer& b = program.buffers[i];
    if (!by_steps[i] || !is_weight(b)) continue;
    read[i] = true;
    if (b.is_derived())
      read[static_cast<std::size_t>(program.slots[static_cast<std::size_t>(b.slot)].master_buffer)] = true;
  }
  return read;
}

std::vector<bool> held_weights(const plan::Program& program) {
  std::vector<bool> held = read_weights(program);
  for (const Slot& slot : program.slots) {
    if (slot.fixed) continue;
    held[static_cast<std::size_t>(slot.master_buffer)] = true;
    for (const BufferId id : slot.copies) held[static_cast<std::size_t>(id)] = true;
  }
  for (std::size_t b = 0; b < held.size(); ++b) held[b] = held[b] && !program.buffers[b].elsewhere;
  return held;
}

namespace {

/// Returns the scale of a copy's values, or null.
const plan::ScaleSlot* scale_of(const plan::Program& program, const plan::Buffer& buffer) {
  if (!buffer.scaled || buffer.scaled->scale < 0) return nullptr;
  return &program.scales.at(static_cast<std::size_t>(buffer.scaled->scale));
}

}  // namespace

std::vector<QuantizedReads> quantized_reads(const plan::Program& program) {
  std::vector<QuantizedReads> reads(program.buffers.size(), {true, true});
  const auto refuse = [&](BufferId id) {
    if (id != plan::kNoBuffer) reads[static_cast<std::size_t>(id)] = {};
  };
  for (const plan::Step& s : program.steps) {
    for (std::size_t i = 0; i < s.inputs.size(); ++i) {
      const BufferId id = s.inputs[i].buffer;
      if (static_cast<std::int32_t>(i) != s.op->quantized) {
        refuse(id);
      } else if (s.op->kind == graph::OpKind::lookup) {
        reads[static_cast<std::size_t>(id)].transposed = false;
      } else if (s.op->kind == graph::OpKind::rows) {
        // The norms of rows read blocks along the inputs of a layer.
        (s.attributes.flag("transposed") ? reads[static_cast<std::size_t>(id)].rows
                                         : reads[static_cast<std::size_t>(id)].transposed) = false;
      }
    }
    for (const BufferId id : s.outputs) refuse(id);
    refuse(s.addend);
  }
  for (std::size_t b = 0; b < reads.size(); ++b) {
    const plan::Buffer& buffer = program.buffers[b];
    if (!is_weight(buffer) || buffer.is_derived() || buffer.type == Scalar::f64 || buffer.shape.rank() != 2)
      reads[b] = {};
  }
  return reads;
}

WeightSet::WeightSet(const plan::Program& program, const Device& device)
    : WeightSet(std::array{&program}, device) {}

WeightSet::WeightSet(Programs programs, const Device& device)
    : programs_(programs.begin(), programs.end()),
      device_(&device),
      scales_(std::make_unique<Scales>(programs)) {
  for (const plan::Program* p : programs_) add(*p);
  allocate([](const plan::Buffer& b) { return !b.elsewhere; });
}

WeightSet::WeightSet(const plan::Program& program, std::vector<View> views, const Device& device)
    : programs_{&program},
      device_(&device),
      scales_(std::make_unique<Scales>(Programs(programs_))),
      views_(std::move(views)) {
  scales_->record(false);
  add(program);
  read_ = read_weights(program);
  std::vector<bool> own = held_weights(program);
  for (const View& v : views_) own[static_cast<std::size_t>(v.buffer)] = false;
  allocate([&](const plan::Buffer& b) { return own[static_cast<std::size_t>(&b - program.buffers.data())]; });
  const auto place_view = [&](const plan::Buffer* buffer, std::byte*& data,
                              std::optional<QuantizedMatrix>& quants) {
    for (const View& v : views_) {
      if (&program.buffer(v.buffer) != buffer) continue;
      data = const_cast<std::byte*>(v.data);
      quants = v.quants;
    }
  };
  for (Parameter& p : parameters_) {
    p.fixed = p.slot->fixed;
    place_view(p.master_buffer, p.master, p.quants);
    for (Copy& c : p.copies) place_view(c.buffer, c.data, c.quants);
  }
}

void WeightSet::release_unread(plan::BufferId id, std::span<const std::byte> part) const {
  const auto view = std::ranges::find(views_, id, &View::buffer);
  if (view == views_.end() || !view->release || read_[static_cast<std::size_t>(id)]) return;
  // A buffer that steps read may be a view of the same tensor.
  const auto shares = [&](const View& v) {
    return v.data == view->data && read_[static_cast<std::size_t>(v.buffer)];
  };
  if (std::ranges::none_of(views_, shares)) view->release(part);
}

bool WeightSet::Copy::holds(const plan::Buffer& b, const plan::ScaleSlot* its_scale) const {
  const auto& mine = buffer->scaled;
  if (buffer->type != b.type || buffer->served != b.served || mine.has_value() != b.scaled.has_value())
    return false;
  if (mine && (mine->blocks != b.scaled->blocks || mine->along_rows != b.scaled->along_rows ||
               mine->scaling != b.scaled->scaling))
    return false;
  return scale == nullptr || its_scale == nullptr ? scale == its_scale : scale->name == its_scale->name;
}

void WeightSet::add(const plan::Program& program) {
  const bool first = &program == programs_.front();
  for (const Slot& slot : program.slots) {
    auto p = std::ranges::find(parameters_, slot.name, [](const Parameter& q) { return q.slot->name; });
    if (p == parameters_.end())
      p = parameters_.insert(p, Parameter{&slot,
                                          &program.buffer(slot.master_buffer),
                                          nullptr,
                                          {},
                                          program.buffer(slot.master_buffer).quants});
    if (p->slot->shape != slot.shape || p->slot->master != slot.master) {
      throw InternalError(fmt::format("weight \"{}\" is {} {} in one program and {} {} in another", slot.name,
                                      p->slot->shape.str(), name(p->slot->master), slot.shape.str(),
                                      name(slot.master)));
    }
    if (p->quants) continue;  // blocks take the place of copies
    for (const BufferId id : slot.copies) {
      const plan::Buffer& b = program.buffer(id);
      const plan::ScaleSlot* scale = scale_of(program, b);
      // A program's copies differ; only those of another program may be here already.
      if (!first && std::ranges::any_of(p->copies, [&](const Copy& c) { return c.holds(b, scale); }))
        continue;
      p->copies.push_back({&b, scale, !first || b.is_derived(), nullptr});
    }
  }
}

template <class Wanted>
void WeightSet::allocate(const Wanted& wanted) {
  // Masters first, then copies, each in the order of the parameters.
  std::size_t end = 0;
  const auto each = [&](const auto& place) {
    end = 0;
    const auto visit = [&](const plan::Buffer& b, std::byte*& data) {
      if (!wanted(b)) return;
      place(data, end);
      end += aligned(b.bytes);
    };
    for (Parameter& p : parameters_) visit(*p.master_buffer, p.master);
    for (Parameter& p : parameters_) {
      for (Copy& c : p.copies) visit(*c.buffer, c.data);
    }
  };
  each([](std::byte*& /*data*/, std::size_t /*offset*/) {});
  storage_ = device_->allocate(end);
  each([&](std::byte*& data, std::size_t offset) { data = storage_.data() + offset; });
}

const WeightSet::Parameter* WeightSet::parameter(std::string_view name) const {
  const auto p = std::ranges::find(parameters_, name,
                                   [](const Parameter& q) -> std::string_view { return q.slot->name; });
  return p == parameters_.end() ? nullptr : &*p;
}

WeightSet::Place WeightSet::place(const plan::Program& program, BufferId id) const {
  const plan::Buffer& wanted = program.buffer(id);
  const Parameter* p = parameter(program.slots.at(static_cast<std::size_t>(wanted.slot)).name);
  if (p == nullptr || p->slot->shape != wanted.shape) return {};
  if (p->master_buffer->quants && !wanted.is_derived()) return {p->master, p->quants};
  if (wanted.home == plan::Home::master)
    return p->slot->master == wanted.type ? Place{p->master, p->quants} : Place{};
  for (const Copy& c : p->copies) {
    if (c.holds(wanted, scale_of(program, wanted))) return {c.data, c.quants};
  }
  return {};
}

std::byte* WeightSet::find(const plan::Program& program, BufferId id) const {
  return place(program, id).data;
}

std::optional<QuantizedMatrix> WeightSet::quants(const plan::Program& program, BufferId id) const {
  return place(program, id).quants;
}

TensorScale* WeightSet::scale(const plan::Program& program, std::int32_t i) const {
  return scales_->find(program.scales.at(static_cast<std::size_t>(i)).name);
}

Matrix WeightSet::master(std::size_t slot) const {
  const Parameter& p = parameters_.at(slot);
  if (p.master_buffer->elsewhere)
    throw InternalError(fmt::format("another rank has the master of \"{}\"", p.slot->name));
  if (p.master == nullptr)
    throw InternalError(fmt::format("no step of the program reads the master of \"{}\"", p.slot->name));
  if (p.quants) throw InternalError(fmt::format("the master of \"{}\" is quantized", p.slot->name));
  return {p.master, p.slot->master, p.slot->shape.last()};
}

std::span<const std::byte> WeightSet::view_master(std::size_t slot, std::size_t offset, std::size_t size,
                                                  std::vector<std::byte>& staging) const {
  if (!parameters_.at(slot).master_buffer->elsewhere)
    return device_->view(static_cast<const std::byte*>(master(slot).data) + offset, size, staging);
  if (!read_remote_) throw InternalError("nothing reads the masters of other ranks");
  staging.resize(size);
  read_remote_(slot, offset, staging);
  return staging;
}

Matrix WeightSet::copy(std::size_t slot, std::size_t c) const {
  const Copy& copy = parameters_.at(slot).copies.at(c);
  if (copy.data == nullptr)
    throw InternalError(fmt::format("no step of the program reads \"{}\"", copy.buffer->name));
  if (copy.quants) throw InternalError(fmt::format("\"{}\" is quantized", copy.buffer->name));
  return {copy.data, copy.buffer->type, copy.buffer->shape.last()};
}

std::vector<std::span<std::byte>> WeightSet::copies_of(std::size_t slot) const {
  std::vector<std::span<std::byte>> all;
  for (const Copy& c : parameters_.at(slot).copies) {
    if (c.data != nullptr) all.push_back({c.data, c.buffer->bytes});
  }
  return all;
}

std::vector<std::span<std::byte>> WeightSet::scales_of(std::size_t slot) const {
  std::vector<std::span<std::byte>> all;
  for (const Copy& c : parameters_.at(slot).copies) {
    if (c.scale == nullptr || !c.scale->current) continue;
    TensorScale& scale = *scales_->find(c.scale->name);
    all.push_back(std::as_writable_bytes(std::span(&scale.scale, 1)));
    all.push_back(std::as_writable_bytes(std::span(&scale.unscale, 1)));
  }
  return all;
}

void WeightSet::assign(const WeightSet& other) {
  for (const Parameter& p : parameters_) {
    if (p.fixed) continue;
    const Parameter* from = other.parameter(p.slot->name);
    if (from != nullptr && (p.master_buffer->elsewhere || from->master_buffer->elsewhere)) continue;
    if (from == nullptr || from->master == nullptr || from->quants != p.quants ||
        from->slot->shape != p.slot->shape || from->slot->master != p.slot->master) {
      throw InternalError(
          fmt::format("the other weight set has no \"{}\" in {}", p.slot->name, name(p.slot->master)));
    }
    device_->copy(p.master, from->master, p.master_buffer->bytes);
  }
  scales_->take_histories(*other.scales_);
  refresh_copies();
}

void WeightSet::take_scales(const WeightSet& other) {
  std::vector<float> before;
  for (std::size_t i = 0; i < scales_->size(); ++i) before.push_back(scales_->scale(i).scale);
  scales_->take_histories(*other.scales_);
  for (std::size_t i = 0; i < scales_->size(); ++i) {
    if (scales_->scale(i).scale == before[i]) continue;
    for (const Parameter& p : parameters_) {
      for (const Copy& c : p.copies) {
        if (c.data != nullptr && c.scale != nullptr && c.scale->name == scales_->slot(i).name) refresh(p, c);
      }
    }
  }
}

void WeightSet::refresh(const Parameter& p, const Copy& copy) {
  if (p.slot->elsewhere) return;
  const plan::Buffer& b = *copy.buffer;
  Matrix master{p.master, p.slot->master, p.slot->shape.last()};
  const Matrix to{copy.data, b.type, b.shape.last()};
  Storage rounded;
  if (b.served.format != WeightFormat::none) {
    if (b.scaled) {
      rounded = Storage(static_cast<std::size_t>(b.shape.count()) * sizeof(float));
      master = {rounded.data(), Scalar::f32, master.ld};
    }
    const Matrix first = b.scaled ? master : to;
    kernels::round_weights(device_->host(), b.shape.leading(), b.shape.last(),
                           {p.master, p.slot->master, p.slot->shape.last()}, first, b.served);
    if (!b.scaled) return;
  }
  if (!b.scaled) {
    kernels::cast(device_->host(), p.slot->shape.count(), master.data, master.type, to.data, to.type);
    return;
  }
  const kernels::StoreScaled how{.blocks = b.scaled->blocks,
                                 .along_rows = b.scaled->along_rows,
                                 .packed = b.layout().blocks.has_value(),
                                 .current = copy.scale != nullptr && copy.scale->current,
                                 .margin = copy.scale != nullptr ? copy.scale->margin : 0,
                                 .rounding = {.scaling = b.scaled->scaling}};
  kernels::store_scaled(device_->host(), b.shape.leading(), b.shape.last(), master, to, how,
                        copy.scale == nullptr ? nullptr : scales_->find(copy.scale->name));
}

void WeightSet::refresh_copies() {
  for (const Parameter& p : parameters_) {
    if (p.fixed) continue;
    for (const Copy& c : p.copies) {
      if (c.data != nullptr) refresh(p, c);
    }
  }
}

void WeightSet::refresh_derived() {
  for (const Parameter& p : parameters_) {
    for (const Copy& c : p.copies) {
      if (c.derived && c.data != nullptr) refresh(p, c);
    }
  }
}

}  // namespace mantissa::runtime
