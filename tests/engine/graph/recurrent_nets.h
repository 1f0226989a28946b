// Nets of the ops of recurrent layers for gradient checks.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "engine/graph/net.h"

namespace mantissa::graph::testing {

inline void add_recurrent_nets(std::map<std::string_view, Graph>& all) {
  constexpr std::int64_t kHeads = 2, kDim = kNetWidth / kHeads;
  const auto vector = [](Net& n, const char* name) { return n.weight(name, {kNetWidth}); };
  {
    Net n;
    const std::vector<ValueId> mixed = n.b.token_shift(
        "shift", n.trained("x"), {n.weight("mix.a", {1, 1, kNetWidth}), vector(n, "mix.b")}, {});
    all["token_shift"] = n.finish(n.b.mul("mul", mixed[0], mixed[1]));
  }
  for (const bool of_heads : {false, true}) {
    Net n;
    const ValueId decay = n.b.decay("w", n.trained("w", of_heads ? kHeads : kNetWidth), -0.6);
    all[of_heads ? "recurrence, decays of heads" : "recurrence"] = n.finish(n.b.recurrence(
        "mix", {n.trained("r"), decay, n.trained("k"), n.trained("v"), n.trained("alpha"), n.trained("beta")},
        kHeads, kDim, kDim, {}));
  }
  {
    Net n;  // the rows begin sequences: no gradient passes to those before
    const auto state = [&](const char* name) {
      return n.b.state(name, {2, kNetWidth}, Role::compute, SequenceState::prefix);
    };
    const ValueId before = state("before");
    const std::vector<ValueId> mixed = n.b.token_shift(
        "shift", n.trained("x"), {vector(n, "mix.a"), vector(n, "mix.b")}, {state("after"), before});
    all["token_shift.carry"] = n.finish(n.b.mul("mul", mixed[0], mixed[1]));
  }
  {
    Net n;
    const auto state = [&](const char* name) {
      return n.b.state(name, {2, kNetWidth * kDim}, Role::state, SequenceState::prefix);
    };
    const ValueId before = state("before"), after = state("after");
    const ValueId decay = n.b.decay("w", n.trained("w"), -0.6),
                  initial = n.weight("initial", {kHeads, kDim, kDim});
    all["recurrence.carry"] = n.finish(n.b.recurrence(
        "mix", {n.trained("r"), decay, n.trained("k"), n.trained("v"), n.trained("alpha"), n.trained("beta")},
        kHeads, kDim, kDim, {after, before}, initial));
  }
  {
    Net n;
    const ValueId decay = n.b.decay("w", n.trained("w"), -0.6),
                  initial = n.weight("initial", {kHeads, kDim, kDim});
    all["recurrence from an initial state"] = n.finish(n.b.recurrence(
        "mix", {n.trained("r"), decay, n.trained("k"), n.trained("v"), n.trained("alpha"), n.trained("beta")},
        kHeads, kDim, kDim, {}, initial));
  }
  {
    Net n;
    const Builder::RwkvKeys keys =
        n.b.rwkv_keys("keys", n.trained("k"), n.trained("a"), vector(n, "k_k"), vector(n, "k_a"), kHeads);
    all["rwkv_keys"] = n.finish(n.b.add("add", n.b.mul("mul", keys.alpha, keys.beta), keys.key));
  }
  {
    Net n;
    all["rwkv_output"] = n.finish(
        n.b.rwkv_output("out",
                        {n.trained("y"), n.trained("r"), n.trained("key"), n.trained("v"), n.trained("g"),
                         n.weight("r_k", {kHeads, kDim}), vector(n, "gain"), vector(n, "bias")},
                        kHeads, 1e-3));
  }
  const auto unary = [&](std::string_view id, ValueId (Builder::*op)(const std::string&, ValueId)) {
    Net n;
    all[id] = n.finish((n.b.*op)("gate", n.trained("x")));
  };
  unary("tanh", &Builder::tanh);
  unary("sigmoid", &Builder::sigmoid);
  {
    Net n;
    all["decay"] = n.finish(n.b.decay("gate", n.trained("x"), -0.6));
  }
  {
    Net n;
    all["lerp"] = n.finish(n.b.lerp("gate", n.trained("x"), n.trained("y"), n.trained("share")));
  }
}

}  // namespace mantissa::graph::testing
