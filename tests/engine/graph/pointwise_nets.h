// Nets of the pointwise ops for gradient checks, with full and with broadcast operands.
#pragma once

#include <map>
#include <string_view>

#include "engine/graph/net.h"

namespace mantissa::graph::testing {

inline void add_pointwise_nets(std::map<std::string_view, Graph>& all) {
  const auto unary = [&](std::string_view id, ValueId (Builder::*op)(const std::string&, ValueId)) {
    Net n;
    all[id] = n.finish((n.b.*op)("act", n.trained("x")));
  };
  unary("relu_squared", &Builder::relu_squared);
  unary("gelu_tanh", &Builder::gelu_tanh);
  unary("gelu_erf", &Builder::gelu_erf);
  unary("quick_gelu", &Builder::quick_gelu);
  unary("kv", &Builder::round_kv);

  const auto binary = [&](std::string_view id, ValueId (Builder::*op)(const std::string&, ValueId, ValueId)) {
    Net n;
    const ValueId x = n.trained("x");  // twice: its gradient is a sum
    all[id] = n.finish(n.b.add("add", x, (n.b.*op)("act", x, n.trained("y"))));
  };
  binary("add", &Builder::add);
  binary("mul", &Builder::mul);
  binary("geglu_tanh", &Builder::geglu_tanh);

  for (const double limit : {0.0, 0.5}) {
    Net n;
    const ValueId x = n.trained("x");
    all[limit == 0 ? "swiglu" : "swiglu, limited"] =
        n.finish(n.b.add("add", x, n.b.swiglu("act", x, n.trained("y"), limit)));
  }
  {
    Net n;
    all["add, broadcast"] = n.finish(n.b.add("add", n.trained("x"), n.weight("bias", {kNetWidth})));
  }
  {
    Net n;
    const ValueId gain = n.weight("gain", {kNetWidth});  // twice: it has two accumulators
    all["mul, broadcast"] = n.finish(n.b.mul("mul", n.b.mul("mul", n.trained("x"), gain), gain));
  }
  {
    Net n;
    all["soft_cap"] = n.finish(n.b.soft_cap("cap", n.trained("x"), 0.75));
  }
  for (const bool bias : {false, true}) {
    Net n;
    const auto frozen = [&](const char* name, Shape shape) {
      const ValueId id = n.weight(name, std::move(shape));
      n.graph.value(id).trainable = false;
      return id;
    };
    // The norms are constants of the gradient, so what they are computed from is frozen.
    const ValueId norms = n.b.row_norms("norms", frozen("w", {kNetWidth, 5}), frozen("a", {2, 5}),
                                        frozen("b", {kNetWidth, 2}), 0.75, Builder::WeightLayout::out_in);
    all[bias ? "magnitude, bias" : "magnitude"] =
        n.finish(n.b.magnitude("dora", n.trained("x"), n.weight("m", {kNetWidth}), norms,
                               bias ? n.weight("bias", {kNetWidth}) : kNone));
  }
  {
    Net n;
    const ValueId x = n.trained("x");
    all["add, terms of a layer"] = n.finish(n.b.sum(
        "layer", n.b.term("base", x, n.weight("base.weight", {kNetWidth, kNetWidth})),
        n.b.term("more", n.b.multiple("more", x, 1.75), n.weight("more.weight", {kNetWidth, kNetWidth}))));
  }
  {
    Net n;
    all["scale"] = n.finish(n.b.scale("scale", n.trained("x"), 1.75));
  }
}

}  // namespace mantissa::graph::testing
