// The graph of a model: values and nodes with scopes, static in capacity. It names no number format: a value
// has a role, and the plan asks the policy what format that role has at its place.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/kernels/pointwise.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/tensor/shape.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::graph {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

struct OpDef;

/// When a node runs: for every micro-batch forward and backward, and once at the end of an optimizer step:
/// `finish` completes the gradients, `update` is an optimizer's. What the plan moves into `evaluate` makes
/// what a backward phase would make on the way: it ends a forward pass that no backward pass follows.
enum class Phase : std::uint8_t { forward, evaluate, backward, finish, update };

enum class ValueKind : std::uint8_t {
  input,            // given for every run
  constant,         // filled once when the program is bound, never cast (RoPE tables)
  parameter,        // a slot that a weight set binds
  activation,       // lives inside one run
  weight_gradient,  // accumulated over the runs of one optimizer step
  state,            // kept between runs (KV cache)
  optimizer_state,  // kept between optimizer steps (moments, compensations)
};

/// What decides a value's format (docs/numerics.md, "Rounding points").
enum class Role : std::uint8_t {
  integer,          // ids and indices: int32, never converted
  arithmetic,       // statistics, tables, unrounded contributions: f32 (f64 under 64-true)
  compute,          // activations
  residual,         // the residual stream
  kv,               // keys and values as they are cached
  output,           // what leaves the model: logits, log-probabilities
  parameter,        // masters
  like,             // as the value `of`: gradients and selections have its format
  weight_gradient,  // what the optimizer reads
  moment,           // what the optimizer keeps
  number,           // one number, formed in double for each run: f64
};

/// How a parameter starts where it is not read from a file.
struct Init {
  enum class Kind : std::uint8_t { normal, ones, zeros } kind = Kind::normal;
  double std = 0.02;
};

/// Fills a constant, whose numbers on the way are rounded to a format: the matrix' own, or a lower one.
using Fill = std::function<void(Matrix, Scalar)>;

struct Value {
  std::string name;  // parameters: the weight's own name; inputs, constants, states: theirs; else "scope.op"
  ValueKind kind = ValueKind::activation;
  Role role = Role::compute;
  Shape shape;
  NodeId producer = kNone;
  ValueId of =
      kNone;  // gradients: of which value; weight gradients: of which parameter; states written: which state
  std::int32_t use = 0;   // weight gradients: which use of the parameter (a tied weight has two)
  Init init{};            // parameters
  bool trainable = true;  // parameters: false where frozen
  ValueId alias = kNone;  // what nodes make: the value whose memory it is written to
  RandomUse random = RandomUse::rounding;  // the stream of random bits that it is rounded with by updates
  Fill fill{};                             // constants
};

/// A setting of a node: a flag, a size, a number such as ε, or a list of sizes.
using Attribute = std::variant<bool, std::int64_t, double, std::vector<std::int64_t>>;

/// Named, typed settings of a node. Few, so a flat list. Reading one that is missing without a fallback, or
/// one of another type, throws InternalError in every build.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string_view, Attribute>> items);

  double number(std::string_view name) const { return get<double>(name); }
  double number(std::string_view name, double fallback) const { return get<double>(name, fallback); }
  std::int64_t integer(std::string_view name) const { return get<std::int64_t>(name); }
  std::int64_t integer(std::string_view name, std::int64_t fallback) const {
    return get<std::int64_t>(name, fallback);
  }
  std::vector<std::int64_t> integers(std::string_view name) const {
    return get<std::vector<std::int64_t>>(name);
  }
  /// A missing flag is false.
  bool flag(std::string_view name) const { return get<bool>(name, false); }

  const std::vector<std::pair<std::string, Attribute>>& items() const { return items_; }

 private:
  const Attribute* find(std::string_view name) const;
  template <class T>
  T get(std::string_view name) const;
  template <class T>
  T get(std::string_view name, T fallback) const;

  std::vector<std::pair<std::string, Attribute>> items_;
};

struct Node {
  const OpDef* op = nullptr;
  std::string scope;
  Phase phase = Phase::forward;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  Attributes attributes;
  kernels::Expression expression = {};  // of updates: what they compute
  std::string label = {};               // of updates: whose ("adamw"), for explain
};

struct OutputSpec;

/// Nodes in the order in which they run.
class Graph {
 public:
  ValueId add_value(Value value);
  /// Appends a node and the values that it makes, whose shapes and roles its op infers. Each has a name of
  /// its own, by which scales and random numbers are keyed: scope and op, and "#2", "#3" … where an earlier
  /// node has that name. Throws ShapeError where the inputs do not fit the op.
  NodeId add_node(std::string_view op, std::string scope, std::vector<ValueId> inputs,
                  Attributes attributes = {}, Phase phase = Phase::forward);

  /// The same of a node of an update, whose outputs its maker says. `node` without outputs.
  NodeId add_node(Node node, std::span<const OutputSpec> outputs);

  const Value& value(ValueId id) const { return values_.at(static_cast<std::size_t>(id)); }
  Value& value(ValueId id) { return values_.at(static_cast<std::size_t>(id)); }
  const Node& node(NodeId id) const { return nodes_.at(static_cast<std::size_t>(id)); }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }

  /// The value called `name` (an input, constant, parameter or state), or kNone.
  ValueId find(std::string_view name) const;
  /// Parameters in the order in which they were declared.
  std::vector<ValueId> parameters() const;

  /// The longest sequence that the graph is built for, with what its cache holds.
  void set_positions(std::int64_t positions) { positions_ = positions; }
  std::int64_t positions() const { return positions_; }

  /// Values that a run hands out, by name.
  void mark_output(std::string name, ValueId value) { outputs_.emplace_back(std::move(name), value); }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }

 private:
  std::string unused_name(std::string name);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
  std::int64_t positions_ = 0;
  std::unordered_map<std::string, int> made_;  // how many nodes made values of a name
};

}  // namespace mantissa::graph
