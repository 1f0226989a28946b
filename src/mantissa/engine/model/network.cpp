#include "mantissa/engine/model/network.h"

#include <cmath>

#include "mantissa/core/base/error_text.h"

namespace mantissa::model {

ValueId NetworkBuilder::parameter(const std::string& name, const Shape& shape, const graph::Init& init) {
  const ValueId there = ops.graph().find(name);
  return there != graph::kNone ? there : ops.parameter(name, shape, init);
}

ValueId NetworkBuilder::linear(const std::string& scope, ValueId x, ValueId weight, ValueId bias,
                               graph::Builder::WeightLayout layout) {
  const AdapterLayer* layer = adapter_ == nullptr ? nullptr : adapter_->find(scope);
  if (layer == nullptr) return ops.matmul(scope, x, weight, bias, layout);
  const bool dora = adapter_->dora;  // multiplies before the bias is added
  if (dora && dropout_.adapter > 0) {
    throw ConfigError(
        "adapter.dropout = {}: is not available with DoRA, whose norms would need the base's product of what is "
        "left. Fix: adapter.dropout = 0, or adapter.dora = false",
        dropout_.adapter);
  }
  const ValueId base = ops.term(scope, x, weight, dora ? graph::kNone : bias, layout);
  const std::int64_t in = ops.graph().value(x).shape.last(), out = ops.graph().value(base).shape.last();
  const std::string scope_a = scope + std::string(kLoraA), scope_b = scope + std::string(kLoraB);
  // Kaiming's uniform initialization with a = √5, that of PyTorch's Linear layers: the bound is 1/√in.
  const ValueId a = parameter(scope_a + ".weight", {layer->rank, in},
                              {graph::Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))});
  const ValueId b = parameter(scope_b + ".weight", {out, layer->rank}, {graph::Init::Kind::zeros, 0});
  // The narrow side is multiplied by s, which takes the least work.
  const double s = adapter_->scale(*layer);
  const ValueId kept = ops.dropout(scope_a, x, dropout_.adapter, "dropout");
  const ValueId narrow =
      s == 1 ? ops.matmul(scope_a, kept, a) : ops.multiple(scope_a, ops.term(scope_a, kept, a), s);
  const ValueId y = ops.sum(scope, base, ops.term(scope_b, narrow, b));
  if (!dora) return y;
  const std::string scope_m = scope + std::string(kMagnitude);
  // Begins as the norms of the weight's rows, which only its values determine.
  const ValueId m = parameter(scope_m + ".weight", {out}, {graph::Init::Kind::ones, 0});
  return ops.magnitude(scope_m, y, m, ops.row_norms(scope_m, weight, a, b, s, layout), bias);
}

ValueId NetworkBuilder::add(const std::string& scope, ValueId residual, ValueId branch) {
  return ops.add(scope, residual, ops.dropout(scope, branch, dropout_.residual, "residual_dropout"));
}

ValueId NetworkBuilder::experts(const std::string& scope, ValueId x, ValueId weight, ValueId choice) {
  const auto product = [&](const std::string& of, ValueId v, ValueId w, bool unrounded) {
    return ops.node("experts", of, {v, w, choice}, {{"unrounded", unrounded}}).front();
  };
  const AdapterLayer* layer = adapter_ == nullptr ? nullptr : adapter_->find(scope);
  if (layer == nullptr) return product(scope, x, weight, false);
  if (adapter_->dora)
    throw ConfigError(
        "{}: DoRA is not supported for experts. Fix: select other layers, or set adapter.dora = false",
        scope);
  const Shape shape = ops.graph().value(weight).shape;
  const std::int64_t count = shape.dim(0).size, out = shape.dim(1).size, in = shape.last();
  const std::string scope_a = scope + std::string(kLoraA), scope_b = scope + std::string(kLoraB);
  const ValueId a = parameter(scope_a + ".weight", {count, layer->rank, in},
                              {graph::Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(in))});
  const ValueId b = parameter(scope_b + ".weight", {count, out, layer->rank}, {graph::Init::Kind::zeros, 0});
  const double s = adapter_->scale(*layer);
  const ValueId base = product(scope, x, weight, true);
  const ValueId kept = ops.dropout(scope_a, x, dropout_.adapter, "dropout");
  const ValueId narrow =
      s == 1 ? product(scope_a, kept, a, false) : ops.multiple(scope_a, product(scope_a, kept, a, true), s);
  return ops.sum(scope, base, product(scope_b, narrow, b, true));
}

ValueId NetworkBuilder::term(const std::string& scope, ValueId x, ValueId weight, ValueId bias) {
  if (adapter_ != nullptr && adapter_->find(scope) != nullptr) return linear(scope, x, weight, bias);
  return ops.term(scope, x, weight, bias);
}

ValueId NetworkBuilder::cached(const std::string& scope, ValueId x) {
  const ValueId rounded = ops.round_kv(scope, x);
  if (kept_.slots == 0) return rounded;
  if (kept_.carries) {
    throw ConfigError(
        "data.carry_state: expected a model whose state has one size for any length, such as rwkv7, got one with "
        "attention, which keeps the keys and values of every token. Fix: remove the key, and set "
        "data.sequence_length to the length of the context");
  }
  // below the projection, so that a rule for the projection applies to the cache too
  const std::string name = scope + ".cache";
  const std::int64_t width = ops.graph().value(x).shape.last();
  const ValueId cache =
      ops.state(name, {kept_.slots, kept_.capacity, width}, graph::Role::kv, graph::SequenceState::positions);
  return ops.cache_append(name, rounded, cache);
}

graph::Builder::PrefixState NetworkBuilder::prefix_state(const std::string& scope, std::int64_t width,
                                                         graph::Role role) {
  if (kept_.slots == 0) return {};
  const auto state = [&](const char* name) {
    return ops.state(scope + name, {kept_.slots, width}, role, graph::SequenceState::prefix);
  };
  if (!kept_.carries) return {state(".state"), graph::kNone};
  const ValueId before = state(".state");
  return {state(".next_state"), before};
}

ValueId NetworkBuilder::initial_state(const std::string& scope, const Shape& shape) {
  if (adapter_ == nullptr || !adapter_->states) return graph::kNone;
  return parameter(scope + std::string(kInitialState), shape, {graph::Init::Kind::zeros, 0});
}

}  // namespace mantissa::model
