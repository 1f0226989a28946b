// What each op computes, in plain doubles without any rounding: the expected results of its kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/engine/graph/op.h"

namespace mantissa::graph::testing {

/// An operand of a reference: its numbers at the extent's size, row by row. Ids are whole numbers.
struct ReferenceOperand {
  std::vector<double> values;
  std::int64_t rows = 1;
  std::int64_t width = 1;

  const double* data() const { return values.data(); }
  double* data() { return values.data(); }
};

/// One execution of an op's reference. Outputs are allocated; those that alias an input contain its values.
/// Weight gradients are overwritten.
struct ReferenceCall {
  const Extent& extent;
  std::span<const ReferenceOperand> inputs;
  std::span<ReferenceOperand> outputs;
  const Attributes& attributes;
  const kernels::Expression* expression = nullptr;  // for pointwise ops
};

using Reference = void (*)(const ReferenceCall&);

/// Returns the reference of an op, or null if it has none.
Reference reference_of(const OpDef& op);

struct NamedReference {
  std::string_view id;  // of the op
  Reference run = nullptr;
};

/// The references of ops whose test is one file (added_op.h).
std::vector<NamedReference>& added_references();

// The parts of the table.
std::span<const NamedReference> move_references();       // values copied or selected
std::span<const NamedReference> row_references();        // norms and sums over rows or tokens, attention
std::span<const NamedReference> product_references();    // products and the head
std::span<const NamedReference> recurrent_references();  // of recurrent layers
std::span<const NamedReference> update_references();     // passes of optimizers

}  // namespace mantissa::graph::testing
