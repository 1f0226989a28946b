// What the passes work on and end with: steps over typed buffers, with every rounding visible and every byte
// placed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/graph/op.h"
#include "mantissa/precision/coverage.h"
#include "mantissa/precision/policy.h"

namespace mantissa::plan {

using BufferId = std::int32_t;
inline constexpr BufferId kNoBuffer = -1;

/// Where a buffer lives: in a region of the one arena, in the weight set (masters, copies), in memory that
/// outlives the program (`kept`, what optimizers keep), or in another program's (`bound`, the gradients that
/// an update reads).
enum class Home : std::uint8_t { input, constant, state, gradient, activation, master, copy, kept, bound };

/// How a buffer holds the values of another: under a scale, or scales of blocks (numeric/scaled.h). Blocks
/// are kept as their values in the buffer's type.
struct Quantization {
  std::optional<BlockFormat> blocks;  // none: one scale, in the buffer's own format
  bool along_rows = false;            // blocks lie across rows, else along them
  std::int32_t scale = -1;            // of Program::scales; -1: none
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// The scale of one tensor: what its values are rounded for.
struct ScaleSlot {
  std::string name;               // the tensor's
  Scalar element = Scalar::e4m3;  // what is scaled to fit; nvfp4: of its blocks' scales
  bool nvfp4 = false;
  bool current = false;      // from the tensor itself, else from earlier steps
  std::int32_t margin = 0;   // binades
  std::int64_t history = 0;  // steps; 0 where current
};

struct Buffer {
  std::string name;
  Shape shape;
  Scalar type = Scalar::f32;
  bool integer = false;  // int32
  Home home = Home::activation;
  graph::ValueId value = graph::kNone;  // the graph's value that it holds; kNone for partial results
  std::int32_t slot = -1;               // masters, copies and what is kept: which parameter slot
  std::optional<Quantization> quantization = {};
  /// Of the policy, that decides the type of what a step makes; "" where none does.
  std::string_view field = {};
  RandomUse random = RandomUse::rounding;  // the stream of random bits that updates round it with
  BufferId parent = kNoBuffer;             // of a view: the buffer whose columns it is; not a view itself
  std::int64_t first_column = 0;           // of a view, in the parent
  std::size_t offset = 0;                  // in the arena, in the weight set, or in what is kept
  std::size_t bytes = 0;
};

struct Operand {
  BufferId buffer = kNoBuffer;
  Factor operand = Scalar::f32;   // where the op multiplies it: rounded like this while it is loaded
  std::string_view factors = {};  // and what the policy calls that format
};

struct Step {
  const graph::OpDef* op = nullptr;
  std::string scope;
  graph::Phase phase = graph::Phase::forward;
  std::vector<Operand> inputs;
  std::vector<BufferId> outputs;
  BufferId addend = kNoBuffer;
  Scalar rounded = Scalar::f32;  // rounding of the result before the addend
  Factor compute = Scalar::f32;  // of factors, as the policy says for this use
  Accumulator accumulator = {};
  Scalar interior = Scalar::f32;          // of the op's inside (OpDef::interior)
  Rounding rounding = Rounding::nearest;  // of "round" steps, and of what updates keep
  std::uint64_t random_name = 0;          // of what is rounded stochastically
  std::string_view factors = {};          // what the policy calls the format of factors here
  std::string decided_by;
  graph::Attributes attributes;
  kernels::Expression expression;  // pointwise steps
  std::vector<std::string> parts;  // fused steps: what they are made of
  bool recomputed = false;         // a step of the forward phase that runs again in the backward phase
  double flops = 0;                // that are needed
  double executed_flops = 0;       // by the kernel
  double capped = 0;               // scores or logits that a soft cap bounds (graph::Cost)
  double bytes = 0;                // read and written at capacity
  std::string label = {};          // of updates: whose, for explain ("adamw")
  bool may_break = false;          // of updates: a finite weight may become inf or nan, so they run dry first
  std::size_t workspace = 0;
};

/// A parameter of the program: weight sets bind to it.
struct Slot {
  std::string name;
  Shape shape;
  Scalar master = Scalar::f32;
  graph::Init init;
  BufferId master_buffer = kNoBuffer;
  std::vector<BufferId> copies;   // in lower formats, written by the optimizer
  BufferId gradient = kNoBuffer;  // what the optimizer reads; kNoBuffer in programs that do not train
};

struct MemoryRegions {
  std::size_t inputs = 0, constants = 0, states = 0, gradients = 0, activations = 0, work = 0;  // the arena
  std::size_t masters = 0, copies = 0;  // the weight set
  std::size_t kept = 0;                 // what optimizers keep
  std::size_t arena() const { return inputs + constants + states + gradients + activations + work; }
  std::size_t weights() const { return masters + copies; }
};

/// A compiled graph. Immutable; executors and weight sets refer to it.
struct Program {
  precision::Policy policy;
  Scalar arithmetic = Scalar::f32;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<Slot> slots;
  std::vector<ScaleSlot> scales;
  std::vector<std::pair<std::string, BufferId>> outputs;
  std::vector<std::pair<BufferId, std::function<void(Matrix)>>> constants;
  MemoryRegions memory;
  std::size_t work_offset = 0;
  std::int64_t token_capacity = 0;
  std::int64_t positions = 0;    // the longest sequence, with what its cache holds
  std::int64_t shards = 1;       // of the batch of an optimizer step
  Scalar reduce = Scalar::f32;   // what the sums of their gradients are rounded to
  Scalar softmax = Scalar::f32;  // of log-probabilities that are taken from logits
  std::vector<std::string> warnings;
  std::vector<std::size_t> unmatched_rules;  // rules of the policy that match no use
  std::vector<precision::Place> places;      // all that rules can speak of, where one matches none of it

  /// The update of the weights, another program over these slots; null where this one does not train, or its
  /// weights are updated elsewhere.
  std::shared_ptr<const Program> update;

  const Buffer& buffer(BufferId id) const { return buffers.at(static_cast<std::size_t>(id)); }
  /// The elements between the starts of a buffer's rows: the width of its parent, or its own.
  std::int64_t row_stride(const Buffer& b) const {
    return b.parent == kNoBuffer ? b.shape.last() : buffer(b.parent).shape.last();
  }
  Buffer& buffer(BufferId id) { return buffers.at(static_cast<std::size_t>(id)); }
  /// The buffer of an input, state, constant or output called `name`; kNoBuffer where there is none.
  BufferId find(std::string_view name) const;
  /// The same; throws InternalError where there is none.
  BufferId required(std::string_view name) const;
};

/// The slot whose weight a step of an update writes; null where it writes none.
const Slot* written_slot(const Program& update, const Step& step);

precision::Pass pass_of(graph::Phase phase);

/// The inside of an op, called `interior`, as rules see it.
precision::Use interior_use(std::string_view scope, std::string_view interior, graph::Phase phase);

}  // namespace mantissa::plan
