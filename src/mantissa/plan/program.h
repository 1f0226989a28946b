// What the passes work on and end with: steps over typed buffers, with every rounding visible and every byte
// placed.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// Where a buffer lives. All but masters and copies are regions of the one arena.
enum class Home : std::uint8_t { input, constant, state, gradient, activation, master, copy };

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
  std::int32_t slot = -1;               // masters and copies: which parameter slot
  std::optional<Quantization> quantization = {};
  std::string_view field =
      {};                  // of the policy, that decides the type of what a step makes; "" where none does
  std::size_t offset = 0;  // in the arena, or in the weight set
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
  Rounding rounding = Rounding::nearest;  // of "round" steps
  std::uint64_t random_name = 0;          // of what is rounded stochastically
  std::string_view factors = {};          // what the policy calls the format of factors here
  std::string decided_by;
  graph::Attributes attributes;
  kernels::Expression expression;  // pointwise steps
  std::vector<std::string> parts;  // fused steps: what they are made of
  bool recomputed = false;         // a step of the forward phase that runs again in the backward phase
  double flops = 0;                // that are needed
  double executed_flops = 0;       // by the kernel
  double bytes = 0;                // read and written at capacity
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
  Scalar moments = Scalar::f32;
  Rounding rounding = Rounding::nearest;  // of master and moments below the arithmetic's format
  Scalar arithmetic = Scalar::f32;        // of the update
  bool compensated = false;               // what an update loses in rounding the master is kept
};

struct MemoryRegions {
  std::size_t inputs = 0, constants = 0, states = 0, gradients = 0, activations = 0, work = 0;  // the arena
  std::size_t masters = 0, copies = 0;  // the weight set
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

  const Buffer& buffer(BufferId id) const { return buffers.at(static_cast<std::size_t>(id)); }
  Buffer& buffer(BufferId id) { return buffers.at(static_cast<std::size_t>(id)); }
  /// The buffer of an input, state, constant or output called `name`; kNoBuffer where there is none.
  BufferId find(std::string_view name) const;
  /// The same; throws InternalError where there is none.
  BufferId required(std::string_view name) const;
};

precision::Pass pass_of(graph::Phase phase);

/// The inside of an op, called `interior`, as rules see it.
precision::Use interior_use(std::string_view scope, std::string_view interior, graph::Phase phase);

}  // namespace mantissa::plan
