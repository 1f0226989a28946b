// One op with operands of chosen shapes, formats and values, run by its kernel and by its reference.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/graph/references/references.h"
#include "kernels/row_testing.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph::testing {

using kernels::testing::Tensor;

/// The layout and storage of an operand.
enum class Stored : std::uint8_t {
  storage,     // in the case's storage format
  arithmetic,  // f32 (f64 in f64): statistics, tables, weight gradients
  ids,         // int32
};

struct InputSpec {
  Shape shape;
  Stored stored = Stored::storage;
  double scale = 1;          // standard deviation
  std::int64_t entries = 0;  // ids: below this; −1 occurs if `unasked`
  bool unasked = false;
};

/// Storage of activations and weights, format of factors, and arithmetic.
struct Formats {
  Scalar arithmetic, storage, compute;
};

/// Lengths of the rows of a batch, and how many of them form a leaf.
struct Rows {
  std::vector<std::int64_t> lengths;
  std::int64_t per_leaf = 1;
};

using Operands = std::vector<ReferenceOperand>;

/// The largest difference of a result from the reference: chain · u(arithmetic) + factors · u(compute), both
/// times `magnitude[output]` or, if that is empty, times the reference's result for the absolute values of
/// the inputs.
struct Bound {
  double chain = 1;
  double factors = 0;
  std::vector<double> magnitude = {};
};

class Case;

/// The test case of an op: operands, attributes, and its error.
struct OpRow {
  std::string id;
  std::string label;
  std::function<std::vector<InputSpec>(std::int64_t tokens, std::int64_t rows)> inputs;
  std::function<Bound(const Case&)> bound;
  Attributes attributes = {};
  std::int64_t position = 0;                          // start of every segment in its sequence
  std::function<void(Operands&, Case&)> adjust = {};  // sets inputs that depend on others
  kernels::Expression expression = {};                // of "fused"
};

class Case {
 public:
  Case(const OpRow& row, const Formats& formats, const Rows& rows, unsigned seed)
      : row_(row), op_(find_op(row.id)), formats_(formats) {
    for (std::size_t r = 0; r < rows.lengths.size(); ++r) {
      rows_.push_back({tokens_, rows.lengths[r]});
      segments_.push_back({tokens_, rows.lengths[r], row.position, static_cast<std::int64_t>(r)});
      tokens_ += rows.lengths[r];
    }
    extent_ = {tokens_, rows_, segments_, rows.per_leaf};
    extent_.trains = true;
    make_inputs(seed);
    make_node();
    sizes_.tokens = tokens_;
    sizes_.arithmetic = formats.arithmetic;
    sizes_.outputs = output_types_;
    sizes_.longest_row = *std::max_element(rows.lengths.begin(), rows.lengths.end()) + row.position;
    for (std::size_t r = 0; r < rows_.size(); r += static_cast<std::size_t>(rows.per_leaf)) {
      std::int64_t leaf = 0;
      for (std::size_t i = r; i < std::min(rows_.size(), r + static_cast<std::size_t>(rows.per_leaf)); ++i)
        leaf += rows_[i].length;
      sizes_.longest_leaf = std::max(sizes_.longest_leaf, leaf);
    }
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  const OpDef& op() const { return op_; }
  const Formats& formats() const { return formats_; }
  const Extent& extent() const { return extent_; }
  const Operands& inputs() const { return inputs_; }
  /// The inputs' sizes; ids as they are.
  Operands absolute_inputs() const {
    Operands absolute = inputs_;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      for (double& x : absolute[i].values) x = specs_[i].stored == Stored::ids ? x : std::abs(x);
    }
    return absolute;
  }
  double largest(std::size_t input) const {
    double m = 0;
    for (const double x : inputs_[input].values) m = std::max(m, std::abs(x));
    return m;
  }

  /// The reference's outputs for `inputs`.
  Operands reference(const Operands& inputs) const {
    Operands outputs;
    for (std::size_t o = 0; o < output_shapes_.size(); ++o) {
      outputs.push_back(empty(output_shapes_[o]));
      if (o == 0 && op_.alias != kNone)
        outputs[0].values = inputs[static_cast<std::size_t>(op_.alias)].values;
    }
    reference_of(op_)({extent_, inputs, outputs, row_.attributes, &expression_});
    return outputs;
  }

  /// The kernel's outputs. `twice`: a second time into the same memory, added to what is there. `gap`:
  /// columns after each row of the operands that OpDef::strided names; the outputs come back without them.
  std::vector<Tensor> run(kernels::Context ctx, bool twice = false, std::int64_t gap = 0) const {
    std::vector<Tensor> in = tensors_;
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (is_strided(op_.strided.inputs, i)) in[i] = with_gap(in[i], gap);
    }
    std::vector<std::vector<std::int32_t>> ids(in.size());
    std::vector<Argument> arguments;
    for (std::size_t i = 0; i < in.size(); ++i) {
      Argument a = argument(in[i], inputs_[i]);
      a.operand = factor_format(i);
      if (specs_[i].stored == Stored::ids) {
        ids[i].assign(inputs_[i].values.begin(), inputs_[i].values.end());
        a.data = ids[i].data();
        a.integer = true;
      }
      arguments.push_back(a);
    }
    std::vector<Tensor> out;
    for (std::size_t o = 0; o < output_shapes_.size(); ++o) {
      const ReferenceOperand shape = empty(output_shapes_[o]);
      out.emplace_back(output_types_[o], shape.rows, shape.width,
                       is_strided(op_.strided.outputs, o) ? gap : 0);
      if (o == 0 && op_.alias != kNone) out[0] = in[static_cast<std::size_t>(op_.alias)];
    }
    std::vector<Argument> results;
    std::vector<std::vector<std::int32_t>> whole(out.size());
    for (std::size_t o = 0; o < out.size(); ++o) {
      Argument a = argument(out[o], empty(output_shapes_[o]));
      a.rounded = formats_.arithmetic;
      if (integer_[o]) {
        whole[o].resize(static_cast<std::size_t>(a.rows * a.width));
        a.data = whole[o].data();
        a.integer = true;
      }
      results.push_back(a);
    }
    if (op_.alias != kNone) arguments[static_cast<std::size_t>(op_.alias)].data = results[0].data;
    std::vector<std::byte> work(64);
    if (op_.workspace != nullptr) work.resize(op_.workspace(view(), sizes_, ctx) + 64);
    void* begin = work.data();
    std::size_t space = work.size();
    ctx.workspace = static_cast<std::byte*>(std::align(64, space - 63, begin, space));
    ctx.workspace_bytes = work.size() - 64;
    Call call{.ctx = ctx,
              .extent = extent_,
              .inputs = arguments,
              .outputs = results,
              .attributes = row_.attributes,
              .expression = &expression_,
              .addend = {},
              .accumulate = false,
              .arithmetic = formats_.arithmetic,
              .compute = formats_.compute};
    op_.run(call);
    call.accumulate = true;
    if (twice) op_.run(call);
    for (std::size_t o = 0; o < out.size(); ++o) {
      if (out[o].ld != out[o].columns) out[o] = without_gap(out[o]);
      for (std::size_t i = 0; i < whole[o].size(); ++i)
        out[o].set(static_cast<std::int64_t>(i) / out[o].columns,
                   static_cast<std::int64_t>(i) % out[o].columns, whole[o][i]);
    }
    return out;
  }

  bool is_weight_gradient(std::size_t output) const { return weight_gradient_[output]; }

 private:
  NodeView view() const { return {graph_, ids_, row_.attributes}; }

  /// If the policy multiplies in a format that cannot represent the stored values, factors are rounded to it.
  Scalar factor_format(std::size_t input) const {
    const Scalar stored = tensors_[input].type;
    const Read read = op_.reads[std::min(input, op_.reads.size() - 1)];
    const bool narrower = traits(formats_.compute).mantissa_bits < traits(stored).mantissa_bits;
    return read == Read::matmul && narrower ? formats_.compute : stored;
  }

  static bool is_strided(std::uint32_t strided, std::size_t operand) {
    return (strided >> operand & 1U) != 0;
  }
  static Tensor with_gap(const Tensor& t, std::int64_t gap) {
    Tensor wide(t.type, t.rows, t.columns, gap);
    copy_rows(t, wide);
    return wide;
  }
  /// The rows alone. Fails where a byte between two rows has changed.
  static Tensor without_gap(const Tensor& wide) {
    Tensor dense(wide.type, wide.rows, wide.columns);
    copy_rows(wide, dense);
    Tensor untouched(wide.type, wide.rows, wide.columns, wide.ld - wide.columns);
    copy_rows(wide, untouched);
    EXPECT_TRUE(untouched == wide) << "the kernel wrote between rows";
    return dense;
  }
  static void copy_rows(const Tensor& from, Tensor& to) {
    const std::size_t size = bytes_of(from.type), width = static_cast<std::size_t>(from.columns) * size;
    for (std::int64_t i = 0; i < from.rows; ++i)
      std::memcpy(to.bytes.data() + to.at(i, 0) * size, from.bytes.data() + from.at(i, 0) * size, width);
  }

  static Argument argument(Tensor& t, const ReferenceOperand& shape) {
    Argument a;
    a.data = t.bytes.data();
    a.type = a.rounded = t.type;
    a.operand = t.type;
    a.rows = shape.rows;
    a.width = shape.width;
    if (t.ld != t.columns) a.stride = t.ld;
    return a;
  }

  /// As the executor binds a shape: [tokens] alone is a column.
  ReferenceOperand empty(const Shape& shape) const {
    ReferenceOperand o;
    const auto extent_of = [&](const Dim& d) {
      if (d.axis == Axis::tokens) return tokens_;
      return d.axis == Axis::rows ? static_cast<std::int64_t>(rows_.size()) : d.size;
    };
    std::int64_t count = 1;
    for (const Dim& d : shape.dims()) count *= extent_of(d);
    const bool column = shape.rank() == 0 || (shape.rank() == 1 && shape.dim(0).axis != Axis::fixed);
    o.width = column ? 1 : extent_of(shape.dims().back());
    o.rows = count / o.width;
    o.values.assign(static_cast<std::size_t>(count), 0.0);
    return o;
  }

  void make_inputs(unsigned seed) {
    std::mt19937 random(seed);
    specs_ = row_.inputs(tokens_, static_cast<std::int64_t>(rows_.size()));
    for (const InputSpec& spec : specs_) {
      ReferenceOperand o = empty(spec.shape);
      std::normal_distribution<double> normal(0, spec.scale);
      std::uniform_int_distribution<std::int64_t> id(spec.unasked ? -1 : 0,
                                                     std::max<std::int64_t>(0, spec.entries - 1));
      for (double& x : o.values)
        x = spec.stored == Stored::ids ? static_cast<double>(id(random)) : normal(random);
      inputs_.push_back(std::move(o));
    }
    store_inputs();
    if (row_.adjust) {
      row_.adjust(inputs_, *this);
      store_inputs();
    }
    for (std::size_t i = 0; i < specs_.size(); ++i)
      round_row(inputs_[i].data(), inputs_[i].values.size(), factor_format(i));
  }

  /// Rounds the inputs to their storage format.
  void store_inputs() {
    tensors_.clear();
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      const Scalar type = specs_[i].stored == Stored::storage ? formats_.storage : formats_.arithmetic;
      tensors_.emplace_back(type, inputs_[i].rows, inputs_[i].width, inputs_[i].data());
      if (specs_[i].stored != Stored::ids) inputs_[i].values = tensors_[i].values();
    }
  }

  void make_node() {
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      Value value;
      value.name = fmt::format("in{}", i);
      value.shape = specs_[i].shape;
      ids_.push_back(graph_.add_value(std::move(value)));
    }
    expression_ = row_.expression;
    if (op_.infer == nullptr) {  // "fused" ops are created by the plan, with as many outputs as they store
      output_shapes_.assign(expression_.outputs, specs_[0].shape);
      output_types_.assign(expression_.outputs, formats_.storage);
      weight_gradient_.assign(expression_.outputs, false);
      integer_.assign(expression_.outputs, false);
      return;
    }
    if (op_.expression != nullptr) expression_ = op_.expression(view());
    for (const OutputSpec& spec : op_.infer(view())) {
      const bool statistic = spec.name == "lse" || spec.name == "mean" || spec.name == "rstd" ||
                             spec.name == "norm" || spec.name == "weight" || spec.role == Role::output ||
                             spec.role == Role::integer;
      const bool weight = spec.kind == ValueKind::weight_gradient;
      output_shapes_.push_back(spec.shape);
      output_types_.push_back(statistic || weight ? formats_.arithmetic : formats_.storage);
      weight_gradient_.push_back(weight);
      integer_.push_back(spec.role == Role::integer);
    }
  }

  const OpRow& row_;
  const OpDef& op_;
  Formats formats_;
  std::int64_t tokens_ = 0;
  std::vector<Row> rows_;
  std::vector<Segment> segments_;
  Extent extent_;
  Sizes sizes_;
  std::vector<InputSpec> specs_;
  Operands inputs_;
  std::vector<Tensor> tensors_;
  Graph graph_;
  std::vector<ValueId> ids_;
  kernels::Expression expression_;
  std::vector<Shape> output_shapes_;
  std::vector<Scalar> output_types_;
  std::vector<bool> weight_gradient_;
  std::vector<bool> integer_;  // outputs
};

}  // namespace mantissa::graph::testing
