// The position of each token in its sequence, for learned position embeddings.
#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {
namespace {

// Input ids [tokens], used only for its shape; output int32 [tokens]. Attribute "limit": the number of
// positions.
std::vector<OutputSpec> infer(const NodeView& n) {
  return {{n.shape(0), Role::integer}};
}

void check(const Extent& extent, const Attributes& attributes, std::string_view scope) {
  const std::int64_t limit = attributes.integer("limit");
  for (const Segment& s : extent.segments) {
    if (s.position + s.length <= limit) continue;
    throw ShapeError(
        "{}: a sequence of {} tokens needs as many positions, but the table has {}; use shorter sequences",
        scope, s.position + s.length, limit);
  }
}

void run(const Call& c) {
  auto* out = static_cast<std::int32_t*>(c.outputs[0].data);
  for (const Segment& s : c.extent.segments) {
    for (std::int64_t t = 0; t < s.length; ++t) out[s.begin + t] = static_cast<std::int32_t>(s.position + t);
  }
}

}  // namespace

const OpDef kPositions = {
    .id = "positions",
    .op = "positions",
    .doc = "each token's position in its sequence, from 0",
    .kind = OpKind::move,
    .infer = infer,
    .check = check,
    .run = run,
};

}  // namespace mantissa::graph
