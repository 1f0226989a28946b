#include "mantissa/engine/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::graph {

Attributes::Attributes(std::initializer_list<std::pair<std::string_view, Attribute>> items) {
  for (const auto& [name, value] : items) items_.emplace_back(name, value);
}

const Attribute* Attributes::find(std::string_view name) const {
  const auto it =
      std::find_if(items_.begin(), items_.end(), [&](const auto& item) { return item.first == name; });
  return it == items_.end() ? nullptr : &it->second;
}

template <class T>
T Attributes::get(std::string_view name) const {
  const Attribute* found = find(name);
  if (found == nullptr)
    throw InternalError("an op reads attribute \"{}\", which its node does not have", name);
  const T* value = std::get_if<T>(found);
  if (value == nullptr)
    throw InternalError("an op reads attribute \"{}\" with another type than its node has", name);
  return *value;
}

template <class T>
T Attributes::get(std::string_view name, T fallback) const {
  return find(name) == nullptr ? fallback : get<T>(name);
}

template bool Attributes::get(std::string_view) const;
template bool Attributes::get(std::string_view, bool) const;
template std::int64_t Attributes::get(std::string_view) const;
template std::int64_t Attributes::get(std::string_view, std::int64_t) const;
template double Attributes::get(std::string_view) const;
template double Attributes::get(std::string_view, double) const;
template std::vector<std::int64_t> Attributes::get(std::string_view) const;
template std::vector<std::int64_t> Attributes::get(std::string_view, std::vector<std::int64_t>) const;

ValueId Graph::add_value(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

std::string Graph::unused_name(std::string name) {
  const int made = ++made_[name];
  return made == 1 ? name : fmt::format("{}#{}", name, made);
}

NodeId Graph::add_node(std::string_view op, std::string scope, std::vector<ValueId> inputs,
                       Attributes attributes, Phase phase) {
  const OpDef& def = find_op(op);
  const std::vector<OutputSpec> outputs = def.infer(NodeView{*this, inputs, attributes});
  return add_node({&def, std::move(scope), phase, std::move(inputs), {}, std::move(attributes)}, outputs);
}

NodeId Graph::add_node(Node node, std::span<const OutputSpec> outputs) {
  const NodeId id = static_cast<NodeId>(nodes_.size());
  for (const OutputSpec& spec : outputs) {
    Value value;
    value.name = fmt::format("{}.{}{}{}", node.scope, node.op->id, spec.name.empty() ? "" : ".", spec.name);
    value.label = spec.name;
    value.kind = spec.kind;
    value.role = spec.role;
    value.shape = spec.shape;
    if (spec.role == Role::like && node.op->id == "sum") value.name = this->value(spec.of).name + ".grad";
    value.name = unused_name(std::move(value.name));
    value.producer = id;
    value.of = spec.of;
    value.alias = spec.alias;
    node.outputs.push_back(add_value(std::move(value)));
  }
  nodes_.push_back(std::move(node));
  return id;
}

ValueId Graph::find(std::string_view name) const {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].producer == kNone && values_[i].name == name) return static_cast<ValueId>(i);
  }
  return kNone;
}

std::vector<ValueId> Graph::parameters() const {
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    if (values_[i].kind == ValueKind::parameter) ids.push_back(static_cast<ValueId>(i));
  }
  return ids;
}

}  // namespace mantissa::graph
