// Runs a program's steps over its arena, for the part of its capacity that a run uses.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/arena.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/engine/runtime/exchange.h"
#include "mantissa/engine/runtime/token_chunks.h"
#include "mantissa/engine/runtime/weights.h"

namespace mantissa::runtime {

/// Sees each step of an executor before and after it runs.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// A step that an observer does not want does not run.
  virtual bool wants(const plan::Step& /*step*/) { return true; }
  /// May set the counters of the call.
  virtual void before(const plan::Step& /*step*/, graph::Call& /*call*/) {}
  virtual void after(const plan::Step& /*step*/, const graph::Call& /*call*/) {}
};

class Executor {
 public:
  /// Looks up the program's weights in `weights` by name and uses `arena` as its memory. Allocates its own if
  /// `arena` is null or too small. All arguments must outlive the executor. Throws InternalError if a step
  /// uses a weight that the set does not have.
  Executor(const plan::Program& program, const WeightSet& weights, Arena* arena = nullptr);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Sets the memory of a buffer of Home::kept or Home::bound. Required for all of them before a run.
  void place(plan::BufferId id, std::byte* memory);

  /// Returns the memory of a buffer, or of the input, constant, state or output called `name`. A weight in
  /// quantized blocks is dequantized at the first call. Throws InternalError for an unknown name.
  Matrix buffer(std::string_view name) const;
  Matrix buffer(plan::BufferId id) const;

  /// Runs the steps of one phase. `accumulate`: adds weight gradients to the existing values, as all
  /// micro-batches after the first do. Throws ShapeError, before any step runs, if the extent exceeds the
  /// capacity or does not fit an op (OpDef::check). Throws InternalError if another executor has used the
  /// arena since the forward phase.
  void run(graph::Phase phase, const Extent& extent, bool accumulate = false);

  /// A weight that an update would make inf or NaN, and the step that writes it.
  struct Broken {
    const plan::Step* step = nullptr;
    kernels::WeightOverflow weight;
  };
  /// Runs the steps of an update that may break weights (plan::Step::may_break) without changing any weight
  /// or state. Returns the first weight that would become inf or NaN.
  std::optional<Broken> find_broken(const Extent& extent);

  /// Makes this executor the holder of the arena. Fills the constants if another executor held it. Runs of
  /// the forward and update phases call this first. Call it before writing inputs.
  void hold();
  /// Throws InternalError if another executor holds the arena.
  void require_held() const;

  /// Returns the part of the arena that is free between two runs: activations and scratch.
  std::span<std::byte> idle() const;

  /// A stop request ends run() between two steps. Its results are then incomplete.
  std::stop_token stop;

  /// Adds and removes observers, which see every step in the order in which they were added.
  void attach(StepObserver& observer) { observers_.push_back(&observer); }
  void detach(StepObserver& observer) { std::erase(observers_, &observer); }
  /// Replaces all observers. Returns those that were attached.
  std::vector<StepObserver*> exchange(std::vector<StepObserver*> observers) {
    return std::exchange(observers_, std::move(observers));
  }

  /// Sets what moves weights and gradients between ranks. Required for programs with such transfers. A run
  /// with an exchange does not end at a stop request, which other ranks do not know.
  void set_exchange(Exchange* exchange) { exchange_ = exchange; }
  /// Sets what brings the keys of other ranks to attention, if ranks share the tokens of rows. They run the
  /// same phases alike, and a run does not end at a stop request either.
  void set_ring(graph::KeyRing* ring) { ring_ = ring; }
  /// Takes part in the transfers of a phase that other ranks run.
  void run_transfers(graph::Phase phase);

  /// Called after each step, if set, and after the observers.
  std::function<void(const plan::Step&, const graph::Call&)> after_step;

  const plan::Program& program() const { return *program_; }
  const Device& device() const { return *device_; }
  /// Returns the bytes of the executor's own arena.
  std::size_t bytes() const { return own_ == nullptr ? 0 : own_->bytes(); }

 private:
  /// The memory and the scale of a buffer.
  struct Binding {
    std::byte* memory = nullptr;  // of weights and placed buffers
    TensorScale* scale = nullptr;
    std::optional<QuantizedMatrix> quants = {};  // of weights
    const std::byte* interleaved = nullptr;      // of weights: InterleavedWeights
  };
  void bind_weights(const WeightSet& weights);
  void describe_buffers();
  /// Returns the elements of a buffer, or the blocks of a quantized weight.
  std::byte* memory(plan::BufferId id) const;
  /// Finds for each step the beginning of the weight that the next product of its phase reads.
  void find_next_weights();
  /// Returns the operand for the tokens of `extent`, of which `first_token` is the first in the buffers that
  /// hold all tokens.
  graph::Argument bind(plan::BufferId id, const Extent& extent, std::int64_t first_token) const;
  /// The operands of a step, which depend on the numbers of tokens and rows, and on the placed buffers.
  struct Operands {
    std::int64_t first_token = 0, tokens = -1;
    std::size_t rows = 0;
    std::uint64_t placed = 0;
    std::vector<graph::Argument> inputs, outputs;
    graph::Argument addend, leaf;
    bool collects = false;  // an output is a gradient
  };
  /// Returns the operands of a step, those of its last run if they are the same.
  const Operands& operands_of(const plan::Step& step, const Extent& extent, std::int64_t first_token);
  /// Runs a range of steps for one chunk of tokens after another.
  void run_chunked(const plan::ChunkedSteps& range, const Extent& extent, bool accumulate);
  /// Runs a step for all tokens, or for those of a chunk.
  void run_step(const plan::Step& step, const Extent& extent, bool accumulate,
                std::optional<kernels::WeightOverflow>* overflow, const TokenChunk* chunk = nullptr);
  /// Runs steps [begin, end), which are joint products.
  void run_together(std::size_t begin, std::size_t end, const Extent& extent);
  /// Returns the call of a step with these operands.
  graph::Call call_of(const plan::Step& step, const Extent& extent, const Operands& operands) const;

  /// Returns true if a run ends here: no other rank waits for one of its steps.
  bool ends() const { return exchange_ == nullptr && ring_ == nullptr && stop.stop_requested(); }
  /// Start and complete the transfers before step `i` and after it.
  void transfer_before(std::size_t i);
  void transfer_after(std::size_t i);

  const plan::Program* program_;
  const Device* device_;
  Exchange* exchange_ = nullptr;
  graph::KeyRing* ring_ = nullptr;
  std::unique_ptr<Arena> own_;
  Arena* arena_;
  std::vector<Binding> bindings_;           // by buffer
  std::vector<graph::Argument> arguments_;  // by buffer, without memory and extent
  mutable std::map<plan::BufferId, std::vector<std::byte>> dequantized_;  // those that buffer() returned
  std::vector<std::span<const std::byte>> next_weights_;                  // by step
  std::vector<Operands> operands_;                                        // by step
  std::vector<std::size_t> joint_;                                        // by step: plan::joint_products()
  std::uint64_t placed_ = 0;                                              // number of calls of place()
  kernels::Context ctx_;
  std::vector<StepObserver*> observers_;
};

}  // namespace mantissa::runtime
