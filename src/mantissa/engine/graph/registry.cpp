// Access to the list of ops: by tests, explain, benchmarks and the gradient checker.
#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {

std::span<const OpDef* const> all_ops() {
  return kOps;
}

const OpDef& find_op(std::string_view id) {
  for (const OpDef* op : all_ops()) {
    if (op->id == id) return *op;
  }
  throw InternalError("no op \"{}\" is registered", id);
}

bool is_of_gradients(std::string_view id) {
  // "matmul.dx", "rmsnorm.dgain", "attention.grad"; "recurrence.decode" is a forward op.
  const std::string_view kind = id.substr(std::min(id.find('.'), id.size() - 1) + 1);
  return kind == "grad" || (kind.starts_with('d') && kind != "decode");
}

}  // namespace mantissa::graph
