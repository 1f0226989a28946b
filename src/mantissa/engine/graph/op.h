// An op: its complete definition for the rest of the system. Each op has one file in ops/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/layout.h"
#include "mantissa/core/tensor/shape.h"
#include "mantissa/engine/graph/graph.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/loss_count.h"
#include "mantissa/kernels/pointwise.h"
#include "mantissa/kernels/sweep.h"

namespace mantissa::graph {

class GradientBuilder;
class KeyRing;

/// The way in which an op reads an input.
enum class Read : std::uint8_t {
  value,   // as it is stored, converted exactly
  matmul,  // as a factor of a product, rounded to the policy's compute format
};

/// A result of an op: its shape and the source of its format.
struct OutputSpec {
  Shape shape;
  Role role = Role::compute;
  ValueId of = kNone;  // for Role::like
  ValueKind kind = ValueKind::activation;
  std::string_view name = {};  // distinguishes several results of an op ("q", "k")
  ValueId alias = kNone;       // the value whose memory is overwritten
};

/// An operand bound to memory for one run. `width` is the size of the last dimension, `rows` the product of
/// the others in this run's extent. Rows follow each other without a gap, except where OpDef::strided allows
/// one.
struct Argument {
  void* data = nullptr;
  Scalar type = Scalar::f32;
  Factor operand = Scalar::f32;  // inputs read as Read::matmul: the rounding of factors
  Scalar rounded = Scalar::f32;  // outputs: the rounding before an addend is added
  std::int64_t rows = 1;
  std::int64_t width = 1;
  std::int64_t stride = 0;  // elements between the starts of rows; 0: `width`
  Axis axis = Axis::fixed;  // of the first dimension
  bool integer = false;
  TensorScale* scale = nullptr;       // for scaled tensors
  std::optional<Blocks> blocks = {};  // packed in blocks (core/tensor/layout.h); null: elements of `type`
  /// A weight that is read in the blocks of a file; `type` is the format that its values are rounded to. Only
  /// ops that OpDef::quantized names read such inputs.
  std::optional<QuantizedMatrix> quants = {};
  const std::byte* interleaved = nullptr;  // the same weight as kernels/interleave.h stores it; null: none
  bool weight = false;                     // true for a master
  StateCodes codes = StateCodes::none;     // of an optimizer's state in blocks, whose values are f32
  RandomUse random = RandomUse::rounding;  // outputs of updates: their random stream

  float unscale() const { return scale == nullptr ? 1.0F : scale->unscale; }
  std::int64_t row_stride() const { return stride == 0 ? width : stride; }
  ConstMatrix in() const { return {data, type, row_stride()}; }
  Matrix out() const { return {data, type, row_stride()}; }
};

/// A part of one leaf, in a sum over tokens that runs chunk by chunk. The part begins at a multiple of
/// kSumBlock tokens from its row's start and lies within one row.
struct LeafPart {
  Argument sum;         // of the parts so far, in the arithmetic
  bool opens = false;   // the first part: `sum` is overwritten
  bool closes = false;  // the last part: `sum` is added to the output
};

/// One execution of a node. Inputs and outputs are in the node's order.
struct Call {
  const kernels::Context& ctx;
  const Extent& extent;
  std::span<const Argument> inputs;
  std::span<const Argument> outputs;
  const Attributes& attributes;
  const kernels::Expression* expression = nullptr;  // for pointwise ops
  Argument addend = {};                             // data == nullptr: none
  bool accumulate = false;                          // weight gradients: add to the existing values
  const LeafPart* leaf = nullptr;                   // sums over tokens: the tokens are part of a leaf
  bool repeated = false;  // the call has run before: scales of its outputs are neither computed nor recorded
  Scalar arithmetic = Scalar::f32;
  Factor compute = Scalar::f32;     // rounding of factors that the op computes itself (P and dS in attention)
  Accumulator accumulator = {};     // for products; attention uses only its order
  Scalar interior = Scalar::f64;    // precision of intermediate results; f64: that of the arithmetic
  Scalar normalized = Scalar::f64;  // of RMSNorm: rounding before the gain; f64: none
  Rounding rounding = Rounding::nearest;
  // hash_name() of the value, the key of the random bits for stochastic rounding
  std::uint64_t random_name = 0;
  /// For updates: if set, the call writes no kept state and reports here the first value that would overflow.
  std::optional<kernels::WeightOverflow>* overflow = nullptr;
  /// For updates of a weight: if set, the call stores nothing and only counts here.
  kernels::UnmovedCount* unmoved = nullptr;
  /// The input with the factor of weight decay, which such a count leaves out.
  std::optional<kernels::DecayInput> decay = {};
  /// For ops that couple tokens: of the ranks that share the tokens of rows; null: none.
  KeyRing* ring = nullptr;
  /// For products that round a weight gradient (OpDef::rounds_gradient): if set, counts what this loses.
  kernels::RangeCounter* losses = nullptr;
};

/// Sizes for cost and workspace: the node at a given capacity.
struct Sizes {
  std::int64_t tokens = 0;
  std::int64_t longest_row = 0;     // tokens of the longest sequence, including cached positions
  std::int64_t longest_leaf = 0;    // tokens of the largest leaf
  std::int64_t sequence_parts = 1;  // ranks that share a row, and have `longest_row` tokens of it each
  Scalar arithmetic = Scalar::f32;
  std::vector<Scalar> outputs = {};  // formats of the outputs
  std::vector<Scalar> inputs = {};   // and of the inputs
  int parts = 1;                     // number of parts per factor of a product
  bool rounds_sums = false;          // an accumulator of a product rounds

  /// Returns the rows of a micro-batch whose rows have the longest row's tokens.
  std::int64_t rows() const { return longest_row == 0 ? 1 : (tokens + longest_row - 1) / longest_row; }
};

/// Counts arithmetic only. The plan counts the bytes of buffers.
struct Cost {
  double flops = 0;   // necessary flops: causal attention counts half
  double capped = 0;  // scores or logits with a soft cap, counted each time they are computed
};

/// The node in the form in which its op infers shapes and computes cost and workspace.
struct NodeView {
  const Graph& graph;
  std::span<const ValueId> inputs;
  const Attributes& attributes;
  const Shape& shape(std::size_t input) const { return graph.value(inputs[input]).shape; }
};

/// The kind of work of an op. Plans, tables and forecasts treat all ops of a kind alike.
enum class OpKind : std::uint8_t {
  pointwise,  // an expression over elements
  rows,       // reductions over rows or tokens: norms, rotary angles, sums
  product,    // a matrix product
  head,       // a product followed by its softmax
  attention,
  recurrence,  // a state that passes from token to token
  lookup,      // selection of rows by index
  move,        // values copied or converted
};

/// The duty of an op in the passes, in addition to its kind.
enum class Duty : std::uint8_t {
  none,
  sum,         // its result is the sum of its inputs
  collect,     // adds a micro-batch's gradient to that of the step
  conversion,  // changes only the format
  rounding,    // rounds as given by a rule: stochastic, saturating
  split,       // its outputs are the columns of its input, side by side
  join,        // its output holds the columns of its inputs, side by side
};

/// The operands that an op's kernel can access by a row stride, as bits: bit i stands for input or output i.
/// A plan may place such an operand among the columns of a wider buffer.
struct Strided {
  std::uint32_t inputs = 0;
  std::uint32_t outputs = 0;
};
inline constexpr std::uint32_t kAllOperands = ~0U;

/// What passes between the ranks that share rows while they run an op together.
enum class Passed : std::uint8_t {
  nothing,
  keys,            // with values; in a backward op also what is added to their gradients
  state,           // after a block; in a backward op also its gradient
  token,           // the last one of a block
  token_gradient,  // what the first token of a block adds to the gradient of the last one before it
};

struct OpDef {
  std::string_view id;   // unique: "matmul.dx"
  std::string_view op;   // the name in rules, explain and traces: "matmul"
  std::string_view doc;  // one line: formula and rounding points
  OpKind kind = OpKind::pointwise;
  Duty duty = Duty::none;
  std::vector<Read> reads = {Read::value};  // per input; the last element applies to all further inputs
  // the names in rules of the inputs that are factors of products
  std::vector<std::string_view> operands = {};
  Strided strided = {};
  std::int32_t quantized = kNone;  // the input that its kernel can read in quantized blocks (QuantizedMatrix)
  bool copies_rows = false;        // its kernel copies rows of its inputs: they cannot be packed in blocks
  bool takes_addend = false;       // its kernel can add a sum (by its row stride) before the last rounding
  bool rounds_before_addend = false;  // its kernel can also round its own result before that
  /// The names of the values that it computes itself and multiplies, rounded to the policy's compute format
  /// ("P and dS"); "" if it has none.
  std::string_view made_factors = {};
  bool per_token = false;        // a row of its results depends only on the same rows of its inputs
  bool sums_tokens = false;      // its result is a sum over the token axis
  bool rounds_gradient = false;  // its kernel can add to a narrower weight gradient, rounding once
  bool in_place = false;         // output 0 may overwrite an unbroadcast input or addend of the same type
  std::int32_t alias = kNone;    // output 0 overwrites this input (caches, accumulators)
  /// The name in rules of its intermediate results ("softmax"), which are f32 (f64 in 64-true) without such a
  /// rule.
  std::string_view interior = {};
  bool normalizes = false;  // it multiplies normalized values by a gain: policy field norm_cast
  bool routes = false;      // its second output is the experts of each token
  /// Not `nothing`: a row of its results depends on other tokens of the sequence, so the ranks that share
  /// rows run it together, by `Call::ring`.
  Passed passed = Passed::nothing;
  std::vector<OutputSpec> (*infer)(const NodeView&) = nullptr;  // null: given by the creator of a node
  void (*gradient)(GradientBuilder&) = nullptr;           // null: not differentiable, or itself a gradient
  Cost (*cost)(const NodeView&, const Sizes&) = nullptr;  // null: no flops
  std::size_t (*workspace)(const NodeView&, const Sizes&, const kernels::Context&) = nullptr;  // null: none
  kernels::Expression (*expression)(const NodeView&) = nullptr;  // for pointwise ops: the computation
  /// Throws ShapeError with the scope if an extent does not fit the node. Called before the first step of a
  /// run. Null: every extent fits.
  void (*check)(const Extent&, const Attributes&, std::string_view scope) = nullptr;
  void (*run)(const Call&) = nullptr;
  /// The product that `run` computes, for steps that run together. Null: it computes something else.
  kernels::Gemm (*product)(const Call&) = nullptr;
  /// Flops that the kernel executes, if more than the necessary ones (`cost`). Null: equal to them.
  double (*executed_flops)(const NodeView&, const Sizes&) = nullptr;
  /// Returns true if the kernel of a sum over tokens can sum a leaf in parts (Call::leaf). Null: it cannot.
  bool (*sums_parts)(std::span<const Shape> inputs) = nullptr;
  /// Returns true if the sum of a product runs across the rows of input i. Null: all sums run along rows.
  bool (*sums_across_rows)(const Attributes&, std::size_t input) = nullptr;
  /// Fusion: the id of the backward op to merge with, and the id of the merged op.
  std::string_view joins_gradient = {}, joint = {};
  /// The id of the variant of a weight gradient's op that adds its rows to the gradient of another use.
  std::string_view adding_variant = {};
};

/// Returns all ops.
std::span<const OpDef* const> all_ops();
/// Returns the op with this id. Throws InternalError if none is registered.
const OpDef& find_op(std::string_view id);

/// True for the id of an op that only backward passes have: "matmul.dx", "attention.grad".
bool is_of_gradients(std::string_view id);

/// The interface of a gradient rule: the node to differentiate, the gradients of its outputs, and the
/// destination of contributions.
class GradientBuilder {
 public:
  GradientBuilder(Graph& graph, NodeId node, std::vector<std::vector<ValueId>>& contributions,
                  const std::vector<ValueId>& gradients, const std::vector<bool>& needs_gradient);
  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  ValueId input(std::size_t i) const { return node_.inputs.at(i); }
  ValueId output(std::size_t i) const { return node_.outputs.at(i); }
  /// Returns the gradient of output i, or kNone if no seeded output depends on it.
  ValueId gradient(std::size_t i);
  /// Returns true if input i, or something it depends on, is trained.
  bool needed(std::size_t i) const;
  /// Appends a backward node in this node's scope and returns its outputs. Throws InternalError if an input
  /// is kNone, a missing gradient.
  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// Adds `contribution` to the gradient of input i.
  void contribute(std::size_t i, ValueId contribution);

  /// Throws InternalError if the rule did not read an existing gradient.
  void check_all_read() const;

 private:
  Graph& graph_;
  Node node_;  // a copy, since emitting nodes reallocates the graph's
  std::vector<std::vector<ValueId>>& contributions_;
  const std::vector<ValueId>& gradients_;
  const std::vector<bool>& needs_gradient_;
  std::vector<bool> read_;  // gradients of outputs that the rule has read
};

}  // namespace mantissa::graph
