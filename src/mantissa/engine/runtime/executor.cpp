#include "mantissa/engine/runtime/executor.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/joint_products.h"
#include "mantissa/engine/runtime/interleaved.h"
#include "mantissa/engine/runtime/quantized.h"

namespace mantissa::runtime {

using plan::Buffer;
using plan::BufferId;
using plan::Home;

namespace {

/// The most tokens for which threads that wait load the next weight.
constexpr std::int64_t kFewTokens = 16;

}  // namespace

Executor::Executor(const plan::Program& program, const WeightSet& weights, Arena* arena)
    : program_(&program),
      device_(&weights.device()),
      arena_(arena),
      bindings_(program.buffers.size()),
      operands_(program.steps.size()),
      joint_(plan::joint_products(program)),
      ctx_(device_->host()) {
  bind_weights(weights);
  describe_buffers();
  find_next_weights();
  if (arena_ == nullptr || arena_->size() < program.memory.arena()) {
    own_ = std::make_unique<Arena>(program.memory.arena(), *device_);
    arena_ = own_.get();
  }
  ctx_.workspace = arena_->memory_.data() + program.work_offset;
  ctx_.workspace_bytes = program.memory.work;
  hold();
}

Executor::~Executor() {
  if (arena_->holder_ == this) arena_->holder_ = nullptr;
}

void Executor::bind_weights(const WeightSet& weights) {
  for (std::size_t b = 0; b < bindings_.size(); ++b) {
    const Buffer& buffer = program_->buffers[b];
    if (buffer.home == Home::master || buffer.home == Home::copy) {
      bindings_[b].memory = weights.find(*program_, static_cast<BufferId>(b));
      bindings_[b].quants = weights.quants(*program_, static_cast<BufferId>(b));
      if (const InterleavedWeights* copies = weights.interleaved())
        bindings_[b].interleaved = copies->find(bindings_[b].memory);
    }
    if (buffer.scaled && buffer.scaled->scale >= 0)
      bindings_[b].scale = weights.scale(*program_, buffer.scaled->scale);
  }
  const auto check = [&](BufferId id) {
    if (id == plan::kNoBuffer) return;
    const Buffer& b = program_->buffer(id);
    if ((b.home != Home::master && b.home != Home::copy) ||
        bindings_[static_cast<std::size_t>(id)].memory != nullptr)
      return;
    throw InternalError("the weight set has no \"{}\" in {}: it is for a program with other slots or formats",
                        b.name, name(b.type));
  };
  for (const plan::Step& s : program_->steps) {
    for (const plan::Operand& o : s.inputs) check(o.buffer);
    for (const BufferId o : s.outputs) check(o);
    check(s.addend);
  }
}

void Executor::describe_buffers() {
  arguments_.resize(bindings_.size());
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Buffer& b = program_->buffers[i];
    graph::Argument& a = arguments_[i];
    a.quants = bindings_[i].quants;
    a.interleaved = bindings_[i].interleaved;
    a.scale = bindings_[i].scale;
    if (b.parent != plan::kNoBuffer) a.stride = program_->row_stride(b);
    a.type = a.rounded = b.type;
    a.operand = b.type;
    a.integer = b.integer;
    a.blocks = b.layout().blocks;
    a.weight = b.home == Home::master;
    a.random = b.random;
    a.codes = b.codes;
    if (!b.shape.dims().empty()) a.axis = b.shape.dim(0).axis;
  }
}

void Executor::find_next_weights() {
  const std::vector<plan::Step>& steps = program_->steps;
  next_weights_.resize(steps.size());
  std::span<const std::byte> next;
  // The steps of a phase run in a circle: the last ones are followed by the first ones of the next token.
  for (std::size_t i = 2 * steps.size(); i-- > 0;) {
    const plan::Step& s = steps[i % steps.size()];
    if (s.phase != graph::Phase::forward) continue;
    next_weights_[i % steps.size()] = next;
    if (s.op->kind != graph::OpKind::product || s.op->quantized < 0) continue;
    const BufferId id = s.inputs[static_cast<std::size_t>(s.op->quantized)].buffer;
    const Buffer& b = program_->buffer(id);
    const Binding& of = bindings_[static_cast<std::size_t>(id)];
    if (of.memory == nullptr || (b.home != Home::master && b.home != Home::copy)) continue;
    const std::size_t bytes =
        of.quants ? quant_bytes(of.quants->format, static_cast<std::size_t>(b.shape.count())) : b.bytes;
    next = {of.interleaved != nullptr ? of.interleaved : of.memory, bytes};
  }
}

void Executor::hold() {
  if (arena_->holder_ == this) return;
  arena_->holder_ = this;
  for (const plan::Constant& c : program_->constants) c.fill(buffer(c.buffer), c.interior);
}

void Executor::require_held() const {
  if (arena_->holder_ != this)
    throw InternalError("another program has used this program's memory since its forward phase");
}

std::byte* Executor::memory(BufferId id) const {
  const Buffer& b = program_->buffer(id);
  const bool elsewhere =
      b.home == Home::master || b.home == Home::copy || b.home == Home::kept || b.home == Home::bound;
  return elsewhere ? bindings_[static_cast<std::size_t>(id)].memory : arena_->memory_.data() + b.offset;
}

Matrix Executor::buffer(BufferId id) const {
  const Buffer& b = program_->buffer(id);
  std::byte* memory = this->memory(id);
  if (const auto& quants = bindings_[static_cast<std::size_t>(id)].quants; quants) {
    std::vector<std::byte>& elements = dequantized_[id];
    if (elements.empty())
      elements = quantized_elements(ctx_, memory, *quants, b.type, b.shape.leading(), b.shape.last());
    memory = elements.data();
  }
  return {memory, b.type, program_->row_stride(b)};
}

void Executor::place(BufferId id, std::byte* memory) {
  ++placed_;
  bindings_.at(static_cast<std::size_t>(id)).memory = memory;
}

std::span<std::byte> Executor::idle() const {
  const plan::MemoryRegions& m = program_->memory;
  return arena_->memory_.subspan(m.arena() - m.activations - m.work, m.activations + m.work);
}

Matrix Executor::buffer(std::string_view name) const {
  return buffer(program_->required(name));
}

graph::Argument Executor::bind(BufferId id, const Extent& extent, std::int64_t first_token) const {
  graph::Argument a = arguments_[static_cast<std::size_t>(id)];
  const Buffer& b = program_->buffer(id);
  const std::vector<Dim>& dims = b.shape.dims();
  std::byte* data = memory(id);
  if (first_token > 0 && b.shape.has_tokens() && b.chunk == 0) {
    std::int64_t per_token = dims.size() == 1 ? 1 : program_->row_stride(b);
    for (std::size_t i = 1; i + 1 < dims.size(); ++i) per_token *= dims[i].size;
    data += b.layout().bytes(Shape{first_token, per_token});
  }
  a.data = data;
  const auto extent_of = [&](const Dim& d) {
    if (d.axis == Axis::tokens) return extent.tokens;
    if (d.axis == Axis::rows) return static_cast<std::int64_t>(extent.rows.size());
    return d.size;
  };
  // [tokens] alone is a column: one number per row.
  const bool column = dims.size() == 1 && dims[0].axis != Axis::fixed;
  a.width = dims.empty() || column ? 1 : extent_of(dims.back());
  for (std::size_t i = 0; i + (column ? 0 : 1) < dims.size(); ++i) a.rows *= extent_of(dims[i]);
  return a;
}

void Executor::run(graph::Phase phase, const Extent& extent, bool accumulate) {
  if (extent.tokens > program_->token_capacity) {
    throw ShapeError("a run of {} tokens exceeds the program's capacity of {}; compile it for a larger batch",
                     extent.tokens, program_->token_capacity);
  }
  if (phase == graph::Phase::forward || phase == graph::Phase::update) {
    hold();
  } else {
    require_held();
  }
  for (const plan::Step& s : program_->steps) {
    if (s.phase == phase && s.op->check != nullptr) s.op->check(extent, s.attributes, s.scope);
  }
  // With few tokens, a product takes the time of reading its weight.
  const bool by_memory = phase == graph::Phase::forward && extent.tokens <= kFewTokens;
  for (std::size_t i = 0; i < program_->steps.size(); ++i) {
    const plan::Step& s = program_->steps[i];
    if (s.phase != phase) continue;
    transfer_before(i);
    if (ends()) return;
    if (by_memory && s.op->kind == graph::OpKind::product) {
      const std::size_t end = observers_.empty() && !after_step ? joint_[i] : i + 1;
      ctx_.next_weight = next_weights_[end - 1];
      kernels::prefetch_while_waiting(ctx_);
      if (end > i + 1) {
        run_together(i, end, extent);
        ctx_.next_weight = {};
        i = end - 1;
        continue;
      }
    }
    const auto chunked = std::ranges::find(program_->chunked, i, &plan::ChunkedSteps::begin);
    if (chunked != program_->chunked.end()) {
      run_chunked(*chunked, extent, accumulate);
      i = chunked->end - 1;
      transfer_after(i);
      continue;
    }
    run_step(s, extent, accumulate, nullptr);
    ctx_.next_weight = {};
    transfer_after(i);
  }
}

void Executor::transfer_before(std::size_t i) {
  if (program_->gathers.empty()) return;
  if (exchange_ == nullptr) throw InternalError("the program gathers weights, and nothing moves them");
  std::vector<Exchange::Weight> starting;
  for (std::size_t g = 0; g < program_->gathers.size(); ++g) {
    const plan::Gather& gather = program_->gathers[g];
    if (gather.start != i) continue;
    const std::size_t bytes = program_->buffer(gather.buffer).bytes;
    const std::byte* weight = bindings_[static_cast<std::size_t>(gather.weight)].memory;
    starting.push_back({g, {weight, weight == nullptr ? 0 : bytes}, {memory(gather.buffer), bytes}});
  }
  if (!starting.empty()) exchange_->start(std::move(starting));
  for (std::size_t g = 0; g < program_->gathers.size(); ++g) {
    if (program_->gathers[g].first == i) exchange_->await(g);
  }
}

void Executor::transfer_after(std::size_t i) {
  const std::vector<plan::Reduction>& all = program_->reductions;
  if (all.empty()) return;
  if (exchange_ == nullptr) throw InternalError("the program sends gradients, and nothing moves them");
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].after == i)
      exchange_->reduce(r, buffer(program_->slots[all[r].slot].gradient), buffer(all[r].sent));
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].until == i) exchange_->await_reduction(r);
  }
}

void Executor::run_transfers(graph::Phase phase) {
  hold();
  for (std::size_t i = 0; i < program_->steps.size(); ++i) {
    if (program_->steps[i].phase == phase) transfer_before(i);
  }
}

void Executor::run_chunked(const plan::ChunkedSteps& range, const Extent& extent, bool accumulate) {
  const TokenChunks chunks(extent, range.tokens);
  for (const TokenChunk& chunk : chunks.all()) {
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (ends()) return;
      run_step(program_->steps[i], chunk.extent, accumulate, nullptr, &chunk);
    }
  }
}

std::optional<Executor::Broken> Executor::find_broken(const Extent& extent) {
  hold();
  std::optional<kernels::WeightOverflow> overflow;
  for (const plan::Step& s : program_->steps) {
    if (!s.may_break) continue;
    run_step(s, extent, false, &overflow);
    if (overflow) return Broken{&s, *overflow};
  }
  return std::nullopt;
}

const Executor::Operands& Executor::operands_of(const plan::Step& s, const Extent& extent,
                                                std::int64_t first_token) {
  Operands& kept = operands_[static_cast<std::size_t>(&s - program_->steps.data())];
  if (kept.first_token == first_token && kept.tokens == extent.tokens && kept.rows == extent.rows.size() &&
      kept.placed == placed_)
    return kept;
  Operands o;  // kept once it is complete: memory may run out
  o.first_token = first_token;
  o.tokens = extent.tokens;
  o.rows = extent.rows.size();
  o.placed = placed_;
  for (const plan::Operand& input : s.inputs) {
    o.inputs.push_back(bind(input.buffer, extent, first_token));
    o.inputs.back().operand = input.operand;
  }
  for (const BufferId output : s.outputs) {
    o.outputs.push_back(bind(output, extent, first_token));
    o.outputs.back().rounded = s.rounded;
    o.collects = o.collects || program_->buffer(output).home == Home::gradient;
  }
  if (s.addend != plan::kNoBuffer) o.addend = bind(s.addend, extent, first_token);
  if (s.leaf != plan::kNoBuffer) o.leaf = bind(s.leaf, extent, first_token);
  return kept = std::move(o);
}

graph::Call Executor::call_of(const plan::Step& s, const Extent& extent, const Operands& operands) const {
  return {.ctx = ctx_,
          .extent = extent,
          .inputs = operands.inputs,
          .outputs = operands.outputs,
          .attributes = s.attributes,
          .expression = &s.expression,
          .addend = operands.addend,
          .arithmetic = program_->arithmetic,
          .compute = s.compute,
          .accumulator = s.accumulator,
          .interior = s.interior,
          .normalized = s.normalized,
          .rounding = s.rounding,
          .random_name = s.random_name,
          .ring = ring_};
}

void Executor::run_together(std::size_t begin, std::size_t end, const Extent& extent) {
  std::vector<graph::Call> calls;
  for (std::size_t i = begin; i < end; ++i) {
    const plan::Step& s = program_->steps[i];
    calls.push_back(call_of(s, extent, operands_of(s, extent, 0)));
  }
  device_->run_together(*program_->steps[begin].op, calls);
}

void Executor::run_step(const plan::Step& s, const Extent& extent, bool accumulate,
                        std::optional<kernels::WeightOverflow>* overflow, const TokenChunk* chunk) {
  if (std::ranges::any_of(observers_, [&](StepObserver* o) { return !o->wants(s); })) return;
  const Operands& operands = operands_of(s, extent, chunk == nullptr ? 0 : chunk->first_token);
  const bool sums_chunk = chunk != nullptr && s.op->sums_tokens;
  const bool adds_leaf = sums_chunk && chunk->after_leaf;
  graph::LeafPart part{operands.leaf};
  if (chunk != nullptr && chunk->leaf) part.opens = chunk->leaf->opens, part.closes = chunk->leaf->closes;
  graph::Call call = call_of(s, extent, operands);
  call.accumulate = (accumulate && operands.collects) || adds_leaf;
  if (sums_chunk && chunk->leaf) {
    if (s.leaf == plan::kNoBuffer)
      throw InternalError("{}: a leaf is longer than the program was compiled for", s.scope);
    call.leaf = &part;
  }
  call.overflow = overflow;
  // A sum over tokens has its result after the last chunk.
  const bool complete = chunk == nullptr || chunk->last || !s.op->sums_tokens;
  if (overflow != nullptr || !complete) return device_->run(*s.op, call);
  for (StepObserver* o : observers_) o->before(s, call);
  device_->run(*s.op, call);
  for (StepObserver* o : observers_) o->after(s, call);
  if (after_step) after_step(s, call);
}

}  // namespace mantissa::runtime
