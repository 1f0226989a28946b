// A graph as text. Graphs that compute different things have different texts.
#pragma once

#include <fmt/format.h>

#include <string>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/graph/graph.h"
#include "mantissa/engine/graph/op.h"

namespace mantissa::testing {

inline std::string describe(const graph::Attribute& attribute) {
  if (const auto* flag = std::get_if<bool>(&attribute)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&attribute)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&attribute)) return fmt::format("{:a}", *number);
  std::string list;
  for (const std::int64_t n : std::get<std::vector<std::int64_t>>(attribute)) list += fmt::format("{},", n);
  return "[" + list + "]";
}

/// Name, shape, initialization, and the numbers of a constant.
inline std::string describe(const graph::Value& v) {
  std::string out =
      fmt::format("{} {} init {} {:a}", v.name, v.shape.str(), static_cast<int>(v.init.kind), v.init.std);
  if (!v.fill) return out;
  std::vector<double> numbers(static_cast<std::size_t>(v.shape.count()));
  v.fill({numbers.data(), Scalar::f64, v.shape.last()}, Scalar::f64);
  for (const double x : numbers) out += fmt::format(" {:a}", x);
  return out;
}

inline std::string describe(const graph::Graph& graph) {
  std::string out;
  for (const graph::Value& v : graph.values()) out += describe(v) + "\n";
  for (const graph::Node& n : graph.nodes()) {
    out += fmt::format("{} {}", n.scope, n.op->id);
    for (const graph::ValueId id : n.inputs) out += fmt::format(" {}", id);
    for (const auto& [name, attribute] : n.attributes.items())
      out += fmt::format(" {}={}", name, describe(attribute));
    out += "\n";
  }
  return out;
}

}  // namespace mantissa::testing
