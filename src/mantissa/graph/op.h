// An op: everything the rest of the system needs to know of it, stated once. One file of ops/ each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/pointwise.h"
#include "mantissa/kernels/sweep.h"
#include "mantissa/numeric/factor.h"
#include "mantissa/numeric/format.h"
#include "mantissa/numeric/scaled.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/shape.h"

namespace mantissa::graph {

class GradientBuilder;

/// How an op reads one of its inputs.
enum class Read : std::uint8_t {
  value,   // as it is stored, converted exactly
  matmul,  // as a factor of a product: rounded to the policy's compute format
};

/// What an op makes: its shape and what decides its format.
struct OutputSpec {
  Shape shape;
  Role role = Role::compute;
  ValueId of = kNone;  // for Role::like
  ValueKind kind = ValueKind::activation;
  std::string_view name = {};  // told apart where an op makes several ("q", "k")
  ValueId alias = kNone;       // the value whose memory it is written to
};

/// An operand bound to memory for one run. `width` is the size of the last dimension, `rows` the product of
/// the others in this run's extent. Rows follow each other without a gap, except where OpDef::strided allows
/// one.
struct Argument {
  void* data = nullptr;
  Scalar type = Scalar::f32;
  Factor operand = Scalar::f32;  // inputs read as Read::matmul: rounded like this
  Scalar rounded = Scalar::f32;  // outputs: rounded to this before an addend is added
  std::int64_t rows = 1;
  std::int64_t width = 1;
  std::int64_t stride = 0;  // elements between the starts of rows; 0: `width`
  Axis axis = Axis::fixed;  // of the first dimension
  bool integer = false;
  TensorScale* scale = nullptr;            // of tensors that are stored scaled
  bool weight = false;                     // a master
  RandomUse random = RandomUse::rounding;  // outputs of updates: their stream of random bits

  float unscale() const { return scale == nullptr ? 1.0F : scale->unscale; }
  std::int64_t row_stride() const { return stride == 0 ? width : stride; }
  ConstMatrix in() const { return {data, type, row_stride()}; }
  Matrix out() const { return {data, type, row_stride()}; }
};

/// One execution of a node. Inputs and outputs in the node's order.
struct Call {
  const kernels::Context& ctx;
  const Extent& extent;
  std::span<const Argument> inputs;
  std::span<const Argument> outputs;
  const Attributes& attributes;
  const kernels::Expression* expression = nullptr;  // of pointwise ops
  Argument addend;                                  // data == nullptr: none
  bool accumulate = false;                          // weight gradients: add to what is there
  Scalar arithmetic = Scalar::f32;
  Factor compute = Scalar::f32;   // rounding of factors that the op makes itself (P and dS in attention)
  Accumulator accumulator = {};   // of products
  Scalar interior = Scalar::f64;  // of its inside; f64: the arithmetic's
  Rounding rounding = Rounding::nearest;
  std::uint64_t random_name = 0;  // keys the random bits of stochastic rounding: hash_name() of the value
  /// Updates: where this is set, nothing that is kept is written, and what would not fit is noted here.
  std::optional<kernels::WeightOverflow>* overflow = nullptr;
};

/// An operand of a reference: its numbers at the extent's size, row after row. Ids are whole numbers.
struct ReferenceOperand {
  std::vector<double> values;
  std::int64_t rows = 1;
  std::int64_t width = 1;

  const double* data() const { return values.data(); }
  double* data() { return values.data(); }
};

/// One execution of an op's reference. Outputs have their sizes; those that alias an input hold what it
/// holds. Weight gradients are overwritten.
struct ReferenceCall {
  const Extent& extent;
  std::span<const ReferenceOperand> inputs;
  std::span<ReferenceOperand> outputs;
  const Attributes& attributes;
  const kernels::Expression* expression = nullptr;  // of pointwise ops
};

/// Sizes for cost and workspace: the same node at a given capacity.
struct Sizes {
  std::int64_t tokens = 0;
  std::int64_t longest_row = 0;   // tokens of the longest sequence, with what its cache holds
  std::int64_t longest_leaf = 0;  // tokens of the largest leaf
  Scalar arithmetic = Scalar::f32;
  std::vector<Scalar> outputs = {};  // their formats
  int parts = 1;                     // that factors of products are split in
};

/// Bytes at rest are the plan's to count; this is the arithmetic.
struct Cost {
  double flops = 0;   // those that are needed: causal attention counts its half
  double capped = 0;  // scores or logits that a soft cap bounds, once for each time they are computed
};

/// A node as its op sees it when it infers shapes, counts cost, or asks for workspace.
struct NodeView {
  const Graph& graph;
  std::span<const ValueId> inputs;
  const Attributes& attributes;
  const Shape& shape(std::size_t input) const { return graph.value(inputs[input]).shape; }
};

/// The kind of work that an op is. Plans, tables and forecasts treat all ops of a kind alike.
enum class OpKind : std::uint8_t {
  pointwise,  // an expression over elements
  rows,       // reductions over rows or tokens: norms, rotary angles, sums
  product,    // a matrix product
  head,       // a product with its softmax
  attention,
  lookup,  // rows picked by index
  move,    // values copied or converted
};

/// A role that an op has in the passes, beside its kind.
enum class Part : std::uint8_t {
  none,
  sum,         // its result is the sum of its inputs
  collect,     // adds a micro-batch's gradient to the one of the step
  conversion,  // changes the format and nothing else
  rounding,    // rounds as a rule says: stochastically, saturating
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

struct OpDef {
  std::string_view id;   // unique: "matmul.dx"
  std::string_view op;   // what rules, explain and traces call it: "matmul"
  std::string_view doc;  // one line: formula and rounding points
  OpKind kind = OpKind::pointwise;
  Part part = Part::none;
  std::vector<Read> reads;                      // per input; the last one repeats
  std::vector<std::string_view> operands = {};  // what rules call the inputs that are factors of products
  Strided strided = {};
  bool takes_addend = false;          // its kernel can add a sum (by its row stride) before the last rounding
  bool rounds_before_addend = false;  // and round its own result before that
  bool makes_factors = false;    // multiplies values that it computes itself, in the policy's compute format
  bool sums_tokens = false;      // its result is a sum over the token axis
  bool rounds_gradient = false;  // its kernel can add to a weight gradient of fewer bits, rounding once
  bool in_place = false;         // output 0 may be the memory of an unbroadcast input or addend of its type
  std::int32_t alias = kNone;    // output 0 is the memory of this input (caches, accumulators)
  /// What rules call its inside ("softmax"), which is f32 (f64 in 64-true) unless one names it.
  std::string_view interior = {};
  std::vector<OutputSpec> (*infer)(const NodeView&) = nullptr;  // null: the maker of a node says
  void (*gradient)(GradientBuilder&) = nullptr;  // null: not differentiable, or a gradient itself
  Cost (*cost)(const NodeView&, const Sizes&) = nullptr;
  std::size_t (*workspace)(const NodeView&, const Sizes&, const kernels::Context&) = nullptr;  // null: none
  kernels::Expression (*expression)(const NodeView&) = nullptr;  // pointwise ops: what they compute
  /// Throws ShapeError, naming the scope, where an extent does not fit the node. Called before the first step
  /// of a run. Null: every extent fits.
  void (*check)(const Extent&, const Attributes&, std::string_view scope) = nullptr;
  void (*run)(const Call&) = nullptr;
  /// Flops that the kernel executes, where these are more than those needed (`cost`); null: the same.
  double (*executed_flops)(const NodeView&, const Sizes&) = nullptr;
  /// True where the sum of a product runs across the rows of input i, not along them; null: along.
  bool (*sums_across_rows)(const Attributes&, std::size_t input) = nullptr;
  /// A gradient op that can do this op's work on the way, and the op that does both: the ids.
  std::string_view joins_gradient = {}, joint = {};
  /// The id of the variant of a weight gradient's op that adds its rows to the gradient of another use.
  std::string_view adding_variant = {};
  /// The same in plain doubles, without any rounding: what tests judge `run` by.
  void (*reference)(const ReferenceCall&) = nullptr;
};

/// Every op there is.
std::span<const OpDef* const> all_ops();
/// The op with this id. Throws InternalError where none is registered.
const OpDef& find_op(std::string_view id);

/// What a gradient rule works with: the node it differentiates, the gradients of its outputs, and where
/// contributions go.
class GradientBuilder {
 public:
  GradientBuilder(Graph& graph, NodeId node, std::vector<std::vector<ValueId>>& contributions,
                  const std::vector<ValueId>& gradients, const std::vector<bool>& needs_gradient);
  const Graph& graph() const { return graph_; }
  const Node& node() const { return node_; }
  ValueId input(std::size_t i) const { return node_.inputs.at(i); }
  ValueId output(std::size_t i) const { return node_.outputs.at(i); }
  /// The gradient of output i; kNone where no seeded output depends on it.
  ValueId gradient(std::size_t i);
  /// True where input i, or something it depends on, is trained.
  bool needed(std::size_t i) const;
  /// Appends a backward node in this node's scope; returns its outputs. Throws InternalError where an input
  /// is kNone: a gradient that is not there.
  std::vector<ValueId> emit(std::string_view op, std::vector<ValueId> inputs, Attributes attributes = {});
  /// Adds `contribution` to the gradient of input i.
  void contribute(std::size_t i, ValueId contribution);

  /// Throws InternalError where the rule never asked for a gradient that there is.
  void check_all_read() const;

 private:
  Graph& graph_;
  Node node_;  // a copy: emitting nodes moves the graph's
  std::vector<std::vector<ValueId>>& contributions_;
  const std::vector<ValueId>& gradients_;
  const std::vector<bool>& needs_gradient_;
  std::vector<bool> read_;  // gradients of outputs that the rule asked for
};

}  // namespace mantissa::graph
