#include "mantissa/model/network.h"

namespace mantissa::model {

ValueId NetworkBuilder::parameter(const std::string& name, const Shape& shape, const graph::Init& init) {
  const ValueId there = ops.graph().find(name);
  return there != graph::kNone ? there : ops.parameter(name, shape, init);
}

ValueId NetworkBuilder::cached(const std::string& scope, ValueId x) {
  const ValueId rounded = ops.round_kv(scope, x);
  if (cache_.slots == 0) return rounded;
  // below the projection, so that a rule for the projection applies to the cache too
  const std::string name = scope + ".cache";
  const std::int64_t width = ops.graph().value(x).shape.last();
  return ops.cache_append(name, rounded, ops.state(name, {cache_.slots, cache_.capacity, width}));
}

}  // namespace mantissa::model
