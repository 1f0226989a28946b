// The graph of a model: values and nodes with scopes, static in capacity. It names no number format: a value
// has a role, and the plan looks up the format of that role in the policy.
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

#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/tensor/shape.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/pointwise.h"

namespace mantissa::graph {

using ValueId = std::int32_t;
using NodeId = std::int32_t;
inline constexpr std::int32_t kNone = -1;

struct OpDef;

/// The phase in which a node runs. Forward and backward run for every micro-batch. `finish` runs once at the
/// end of an optimizer step and completes the gradients; `update` is the optimizer's. The plan moves into
/// `evaluate` the computation of results that the backward phase would otherwise produce, for a forward pass
/// without a backward pass.
enum class Phase : std::uint8_t { forward, evaluate, backward, finish, update };

enum class ValueKind : std::uint8_t {
  input,            // given to every run
  constant,         // filled when an executor takes its arena, never cast (RoPE tables)
  parameter,        // a slot bound by a weight set
  activation,       // exists within one run
  weight_gradient,  // accumulated over the runs of one optimizer step
  state,            // of sequences, kept between runs (SequenceState)
  optimizer_state,  // kept between optimizer steps (moments, compensations)
};

/// Determines a value's format (docs/numerics.md, "Rounding points").
enum class Role : std::uint8_t {
  integer,          // ids and indices: int32, never converted
  arithmetic,       // statistics, tables, unrounded contributions: f32 (f64 under 64-true)
  compute,          // activations
  residual,         // the residual stream
  kv,               // keys and values as cached
  state,            // states of recurrences
  output,           // outputs of the model: logits, log-probabilities
  parameter,        // masters
  like,             // the format of the value `of`: gradients and selections
  weight_gradient,  // gradients that the optimizer reads
  moment,           // states that the optimizer keeps
  number,           // one number, computed in double for each run: f64
};

/// What a state keeps of a sequence, in one part for each slot.
enum class SequenceState : std::uint8_t {
  positions,  // [slots, capacity, ·]: a row for each position. It forks and rewinds to any of them
  prefix,     // [slots, ·]: one value for all tokens so far. It forks where it is, and cannot rewind
};

/// The initialization of a parameter that is not read from a file.
struct Init {
  enum class Kind : std::uint8_t {
    normal,
    uniform,     // in [−std, std)
    orthogonal,  // a matrix whose shorter side is orthogonal, times std
    values,      // value(index)
    ones,
    zeros,
  } kind = Kind::normal;
  double std = 0.02;
  std::function<double(std::int64_t)> value = {};
};

/// Fills a constant. Intermediate results are rounded to the given format: the matrix' own, or a lower one.
using Fill = std::function<void(Matrix, Scalar)>;

struct Value {
  // parameters: the weight's name; inputs, constants, states: their names; otherwise "scope.op"
  std::string name;
  std::string_view label = {};  // results of nodes: OutputSpec::name
  ValueKind kind = ValueKind::activation;
  Role role = Role::compute;
  Shape shape;
  NodeId producer = kNone;
  ValueId of =
      kNone;  // gradients: of which value; weight gradients: of which parameter; written states: which state
  std::int32_t use = 0;   // weight gradients: which use of the parameter (a tied weight has two)
  Init init{};            // parameters
  bool trainable = true;  // parameters: false if frozen
  bool fixed = false;     // parameters: read from files and never written, such as the base of an adapter
  ValueId alias = kNone;  // results of nodes: the value whose memory is overwritten
  SequenceState keeps = SequenceState::positions;  // states
  RandomUse random = RandomUse::rounding;          // the random stream for its rounding in updates
  bool never_negative = false;                     // states of optimizers
  Fill fill{};                                     // constants
};

/// A setting of a node: a flag, a size, a number such as ε, or a list of sizes.
using Attribute = std::variant<bool, std::int64_t, double, std::vector<std::int64_t>>;

/// Named, typed settings of a node, in a flat list, since there are few. Reading a missing setting without a
/// fallback, or one of another type, throws InternalError in every build.
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
  std::vector<std::int64_t> integers(std::string_view name, std::vector<std::int64_t> fallback) const {
    return get(name, std::move(fallback));
  }
  /// Returns a flag; a missing one is false.
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
  kernels::Expression expression = {};  // for updates: the computation
  std::string label = {};               // for updates: the optimizer's name ("adamw"), for explain
};

struct OutputSpec;

/// Nodes in execution order.
class Graph {
 public:
  ValueId add_value(Value value);
  /// Appends a node and its results, whose shapes and roles the op infers. Each result has a unique name,
  /// which keys scales and random numbers: scope and op, followed by "#2", "#3" … if an earlier node has the
  /// same. Throws ShapeError if the inputs do not fit the op.
  NodeId add_node(std::string_view op, std::string scope, std::vector<ValueId> inputs,
                  Attributes attributes = {}, Phase phase = Phase::forward);

  /// Appends a node of an update with the given outputs. `node` has none yet.
  NodeId add_node(Node node, std::span<const OutputSpec> outputs);

  const Value& value(ValueId id) const { return values_.at(static_cast<std::size_t>(id)); }
  Value& value(ValueId id) { return values_.at(static_cast<std::size_t>(id)); }
  const Node& node(NodeId id) const { return nodes_.at(static_cast<std::size_t>(id)); }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }

  /// Returns the value called `name` (an input, constant, parameter or state), or kNone.
  ValueId find(std::string_view name) const;
  /// Returns the parameters in the order of their declaration.
  std::vector<ValueId> parameters() const;

  /// Sets the longest sequence of the graph, including cached positions.
  void set_positions(std::int64_t positions) { positions_ = positions; }
  std::int64_t positions() const { return positions_; }

  /// Marks a value as a named result of a run.
  void mark_output(std::string name, ValueId value) { outputs_.emplace_back(std::move(name), value); }
  const std::vector<std::pair<std::string, ValueId>>& outputs() const { return outputs_; }

 private:
  std::string unused_name(std::string name);

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::string, ValueId>> outputs_;
  std::int64_t positions_ = 0;
  std::unordered_map<std::string, int> made_;  // number of nodes per result name
};

}  // namespace mantissa::graph
