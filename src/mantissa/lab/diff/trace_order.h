// The order in which a pass computes the tensors of a trace.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/graph/op.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::lab {

/// A tensor's origin: "model.layers.3.mlp.down_proj" and "matmul".
struct TracedOp {
  std::string scope,
      op;  // op: also the result's name, "rope.q"; "" for logits, losses and gradients of weights
  const graph::OpDef* def = nullptr;  // null: not an op of this program
  std::string result = {};            // of an op with several results: "q"
};

/// Splits the name of a tensor of a trace ("value.model.norm.rmsnorm") at its op, the last word that is an op
/// of this program, or at the last dot. The scope of other tensors is their whole name.
TracedOp traced_op(std::string_view name);

/// Returns true for the name of a value of the forward pass.
bool is_forward_value(std::string_view name);

/// Returns true for the name of the gradient of a weight.
bool is_gradient(std::string_view name);

/// Returns true if the file is a trace: it has logits, log_probs, values, or gradients of weights.
bool is_trace(const io::WeightFiles& files);

/// Returns the tensors' names in order: values of the forward pass, logits, log_probs, loss, values of the
/// backward pass, and the gradients of the weights from the last to the first. Values keep the order of the
/// file.
std::vector<std::string> trace_order(const io::WeightFiles& files);

/// Returns true if the values are in the order in which they were computed: this program wrote the file, or
/// its metadata says so (tools/torch_trace.py). Other writers sort names.
bool has_plan_order(const io::WeightFiles& files);

}  // namespace mantissa::lab
