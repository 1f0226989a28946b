// The result of the passes: steps over typed buffers, with every rounding explicit and every byte assigned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/tensor/layout.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/kernels/round_weights.h"
#include "mantissa/precision/policy/coverage.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::plan {

using BufferId = std::int32_t;
inline constexpr BufferId kNoBuffer = -1;

/// The location of a buffer: a region of the arena, the weight set (masters, copies), memory that outlives
/// the program (`kept`, an optimizer's states), or another program's memory (`bound`, the gradients that an
/// update reads).
/// `gathered`: a weight or gradient on the way between ranks, in the arena while steps or transfers use it.
enum class Home : std::uint8_t {
  input,
  constant,
  state,
  gradient,
  activation,
  master,
  copy,
  kept,
  bound,
  gathered
};

/// True if the scales of blocks are f32 numbers. Elements times such scales are stored as f32 values.
constexpr bool in_f32(const BlockScaling& scaling, BlockFormat format) {
  return scaling.rounding == ScaleRounding::none && traits(format).power_of_two_scale;
}

/// How a buffer stores scaled values: with one scale, or with scales of blocks (core/numeric/scaled.h).
/// Buffer::layout() states whether blocks are packed.
struct ScaledStorage {
  std::optional<BlockFormat> blocks;  // null: one scale, in the buffer's format
  bool along_rows = false;            // true: blocks lie along columns; false: along rows
  BlockScaling scaling = {};          // of blocks
  bool stochastic = false;            // elements round stochastically; else to nearest
  bool hadamard = false;              // tokens are transformed first (kernels/hadamard.h)
  std::int32_t scale = -1;            // index in Program::scales; -1: none
  friend bool operator==(const ScaledStorage&, const ScaledStorage&) = default;
};

/// The scale of one tensor.
struct ScaleSlot {
  std::string name;               // the tensor's name
  Scalar element = Scalar::e4m3;  // the format to fit; for nvfp4, that of the blocks' scales
  bool nvfp4 = false;
  bool current = false;      // from the tensor itself; otherwise from earlier steps
  std::int32_t margin = 0;   // binades
  std::int64_t history = 0;  // in steps; 0 if current
};

struct Buffer {
  std::string name;
  Shape shape;
  Scalar type = Scalar::f32;
  bool integer = false;  // int32
  Home home = Home::activation;
  graph::ValueId value = graph::kNone;  // the value of the graph; kNone for partial results
  std::int32_t slot = -1;               // for masters, copies and kept states: the parameter slot
  std::optional<ScaledStorage> scaled = {};
  /// Of a copy: how its values are rounded before they are stored, for the format in which they are served.
  kernels::WeightRounding served = {};
  /// A master that is held in quantized blocks, whose values steps round to `type`; it has no copies.
  std::optional<QuantizedMatrix> quants = {};
  /// The policy field that determines the type of a step's result, or "".
  std::string_view field = {};
  RandomUse random = RandomUse::rounding;  // the random stream for its rounding in updates
  StateCodes codes = StateCodes::none;     // of a kept state in blocks, whose values are of `type` f32
  bool never_negative = false;             // of a kept state
  BufferId parent = kNoBuffer;             // of a view: the buffer whose columns it is; not a view itself
  std::int64_t first_column = 0;           // of a view, in the parent
  graph::SequenceState keeps = graph::SequenceState::positions;  // of a state
  std::size_t offset = 0;  // in the arena, in the weight set, or in kept memory
  std::size_t bytes = 0;
  bool elsewhere = false;  // a weight that this rank does not have (sharing.h)
  bool passing = false;    // a gradient that is not kept after the steps that touch it
  /// The most tokens that it holds at a time, if only the steps of one chunked range use it; 0: all.
  std::int64_t chunk = 0;

  /// Returns the layout in memory. Blocks are packed, except blocks of activations along the tokens: each
  /// sequence starts a new block, so the number of scales depends on the batch. Such activations are stored
  /// as values in `type`.
  Layout layout() const;
  /// Returns the bytes of the contents at capacity.
  std::size_t stored_bytes() const;
  /// Returns the shape that it has in memory: at most one chunk of tokens.
  Shape held_shape() const;
  /// Returns true for a copy that the optimizer does not write: it is computed from its whole master.
  bool is_derived() const { return scaled.has_value() || served.format != WeightFormat::none; }
};

struct Operand {
  BufferId buffer = kNoBuffer;
  Factor operand = Scalar::f32;   // for factors: the rounding while loading
  std::string_view factors = {};  // the policy's name of that format
};

struct Step {
  const graph::OpDef* op = nullptr;
  std::string scope;
  graph::Phase phase = graph::Phase::forward;
  std::vector<Operand> inputs;
  std::vector<BufferId> outputs;
  /// Names of outputs among those of the step, for observers: "q", "grad.weight"; "" if the op has one result
  /// of its kind. May be shorter than `outputs`.
  std::vector<std::string> labels = {};
  std::size_t forward_results =
      0;  // of a gradient's step: the last outputs, which are results of the forward op
  BufferId addend = kNoBuffer;
  BufferId leaf =
      kNoBuffer;  // of a chunked sum over tokens, if leaves do not fit a chunk: the leaf's sum so far
  Scalar rounded = Scalar::f32;           // rounding of the result before the addend
  Factor compute = Scalar::f32;           // format of factors, from the policy for this use
  Accumulator accumulator = {};           // for products; attention uses only its order
  Scalar interior = Scalar::f32;          // precision of intermediate results (OpDef::interior)
  Scalar normalized = Scalar::f64;        // of RMSNorm: rounding before the gain; f64: none
  Rounding rounding = Rounding::nearest;  // for "round" steps, and for states that updates keep
  std::uint64_t random_name = 0;          // key of stochastic rounding
  std::string_view factors = {};          // the policy's name of the format of factors
  std::string decided_by;
  graph::Attributes attributes;
  kernels::Expression expression;  // for pointwise steps
  std::vector<std::string> parts;  // for fused steps: the original steps
  bool recomputed = false;         // repeats a step of the forward phase in the backward phase
  double flops = 0;                // necessary flops
  double executed_flops = 0;       // flops of the kernel
  double capped = 0;               // scores or logits with a soft cap (graph::Cost)
  double bytes = 0;                // read and written at capacity
  std::string label = {};          // for updates: the optimizer's name, for explain ("adamw")
  bool may_break = false;  // for updates: a finite weight can become inf or NaN, so a check runs first
  std::size_t workspace = 0;
};

/// Consecutive steps of one phase that run together for one chunk of tokens after another: all of them for
/// the first chunk, then for the second. Most buffers between them hold only one chunk.
struct ChunkedSteps {
  std::size_t begin = 0, end = 0;  // steps [begin, end)
  std::int64_t tokens = 0;         // the most tokens of a chunk, a multiple of kSumBlock
};

/// A weight that steps read in `buffer`, where its owner copies it on all ranks (sharing.h).
struct Gather {
  BufferId weight = kNoBuffer, buffer = kNoBuffer;
  std::size_t start = 0;  // the step before which the transfer starts
  std::size_t first = 0;  // the first step that reads it
};

/// A gradient that goes to its owner as soon as it is complete, rounded to `reduce` in `sent` (sharing.h).
struct Reduction {
  std::size_t slot = 0;
  BufferId sent = kNoBuffer;
  std::size_t after = 0;  // the last step that writes the gradient
  std::size_t until = 0;  // the step after which `sent` is free
  bool last = false;      // of a block of the model, whose gradients leave together
};

/// A parameter of the program, bound by weight sets.
struct Slot {
  std::string name;
  Shape shape;
  Scalar master = Scalar::f32;
  graph::Init init;
  BufferId master_buffer = kNoBuffer;
  std::vector<BufferId> copies;   // in lower formats, written by the optimizer
  BufferId gradient = kNoBuffer;  // read by the optimizer; kNoBuffer in programs without training
  bool fixed = false;             // read from files and never written (graph::Value::fixed)
  bool elsewhere = false;         // another rank updates it (sharing.h)
  bool gathered = false;          // steps read it in buffers of Home::gathered
};

/// A constant and the function that fills it, with intermediate results rounded to `interior`.
struct Constant {
  BufferId buffer = kNoBuffer;
  graph::Fill fill{};
  Scalar interior = Scalar::f32;
};

struct MemoryRegions {
  // in the arena
  std::size_t inputs = 0, constants = 0, states = 0, gradients = 0, activations = 0, work = 0;
  std::size_t masters = 0, copies = 0;  // in the weight set
  std::size_t kept = 0;                 // kept by optimizers
  std::size_t arena() const { return inputs + constants + states + gradients + activations + work; }
  std::size_t weights() const { return masters + copies; }
};

/// A compiled graph. Immutable; executors and weight sets refer to it.
struct Program {
  precision::Policy policy;
  Scalar arithmetic = Scalar::f32;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<ChunkedSteps> chunked;  // ascending
  std::vector<Gather> gathers;        // by start; those of one step in the order of their first steps
  std::vector<Reduction> reductions;  // by `after`
  std::vector<Slot> slots;
  std::vector<ScaleSlot> scales;
  std::vector<std::pair<std::string, BufferId>> outputs;
  std::vector<Constant> constants;
  MemoryRegions memory;
  std::size_t work_offset = 0;
  std::int64_t token_capacity = 0;
  std::int64_t positions = 0;   // the longest sequence, including cached positions
  std::int64_t shards = 1;      // of the batch of an optimizer step
  Scalar reduce = Scalar::f32;  // format of the sums of their gradients
  Rounding reduce_rounding = Rounding::nearest;
  Scalar softmax = Scalar::f32;  // precision of log-probabilities computed from logits
  std::vector<std::string> warnings;
  std::vector<std::size_t> unmatched_rules;  // rules of the policy that match no use
  std::vector<precision::Place> places;      // all uses that rules can match; empty if every rule matches

  /// The update of the weights, another program over these slots. Null if this program does not train, or if
  /// its weights are updated elsewhere.
  std::shared_ptr<const Program> update;

  const Buffer& buffer(BufferId id) const { return buffers.at(static_cast<std::size_t>(id)); }
  /// Returns the number of elements between the starts of a buffer's rows: the width of its parent, or its
  /// own.
  std::int64_t row_stride(const Buffer& b) const {
    return b.parent == kNoBuffer ? b.shape.last() : buffer(b.parent).shape.last();
  }
  Buffer& buffer(BufferId id) { return buffers.at(static_cast<std::size_t>(id)); }
  /// Returns the buffer of an input, state, constant or output called `name`, or kNoBuffer.
  BufferId find(std::string_view name) const;
  /// Returns the same buffer. Throws InternalError if there is none.
  BufferId required(std::string_view name) const;
};

/// Returns the slot whose weight a step of an update writes, or null.
const Slot* written_slot(const Program& update, const Step& step);

precision::Pass pass_of(graph::Phase phase);

/// Returns the use under which rules see an op's intermediate results, called `interior`.
precision::Use interior_use(std::string_view scope, std::string_view interior, graph::Phase phase);
/// Returns what determines the format of a step's intermediate results: a rule, the preset or line, or
/// "built-in".
std::string interior_decided_by(const Program& program, const Step& step);

}  // namespace mantissa::plan
