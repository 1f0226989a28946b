// Appends new keys or values to a cache.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"
#include "mantissa/kernels/update.h"

namespace mantissa::graph {
namespace {

// Inputs x [tokens, width], cache [slots, capacity, width]; output: the cache.
std::vector<OutputSpec> infer(const NodeView& n) {
  if (n.shape(1).rank() != 3 || n.shape(1).last() != n.shape(0).last()) {
    throw ShapeError("cache_append: the cache {} does not hold rows of {}", n.shape(1).str(),
                     n.shape(0).str());
  }
  return {{n.shape(1), Role::kv, n.inputs[1], ValueKind::state}};
}

void run(const Call& c) {
  const Argument& x = c.inputs[0];
  const Argument& cache = c.outputs[0];
  const std::int64_t capacity = c.attributes.integer("capacity");
  const auto at = [](const Argument& a, std::int64_t row) {
    return static_cast<std::byte*>(a.data) +
           static_cast<std::size_t>(row * a.row_stride()) * bytes_of(a.type);
  };
  for (const Segment& s : c.extent.segments) {
    // Rows without gaps are one run.
    const std::int64_t runs = x.row_stride() == x.width ? 1 : s.length;
    const std::int64_t rows = s.length / runs, place = s.slot * capacity + s.position;
    for (std::int64_t i = 0; i < runs; ++i) {
      kernels::cast(c.ctx, rows * x.width, at(x, s.begin + i), x.type, at(cache, place + i), cache.type);
    }
  }
}

}  // namespace

const OpDef kCacheAppend = {
    .id = "cache_append",
    .op = "cache",
    .doc = "keys or values stored at their positions of the segment's cache slot",
    .kind = OpKind::move,
    .strided = {.inputs = 0b1},
    .alias = 1,
    .infer = infer,
    .run = run,
};

}  // namespace mantissa::graph
