#include "mantissa/lab/diff/trace_order.h"

#include <algorithm>

#include "mantissa/core/base/words.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/files/convert/origin.h"

namespace mantissa::lab {
namespace {

constexpr std::string_view kValue = "value.", kGradient = "grad.";

/// Returns true if `text` is `words`, or begins with these words.
bool begins_with_words(std::string_view text, std::string_view words) {
  return text.starts_with(words) && (text.size() == words.size() || text[words.size()] == '.');
}

bool is_op_word(std::string_view word) {
  return std::ranges::any_of(graph::all_ops(),
                             [&](const graph::OpDef* op) { return begins_with_words(op->id, word); });
}

/// Returns the op with the longest id that begins `name` ("attention.grad" of "attention.grad.q"), or null.
const graph::OpDef* op_of(std::string_view name) {
  const graph::OpDef* found = nullptr;
  for (const graph::OpDef* op : graph::all_ops()) {
    const bool longer = found == nullptr || op->id.size() > found->id.size();
    if (longer && begins_with_words(name, op->id)) found = op;
  }
  return found;
}

/// Returns true if the backward pass computes the value: "…matmul.dx", "…attention.grad.q".
bool is_backward(std::string_view name) {
  const graph::OpDef* op = op_of(traced_op(name).op);
  return op != nullptr && graph::is_of_gradients(op->id);
}

/// Returns the place of a tensor's group in the order.
int kind_of_name(std::string_view name) {
  if (name.starts_with(kValue)) return is_backward(name) ? 4 : 0;
  if (name == "logits") return 1;
  if (name == "log_probs") return 2;
  if (name == "loss") return 3;
  return name.starts_with(kGradient) ? 5 : 6;
}

}  // namespace

TracedOp traced_op(std::string_view name) {
  if (!name.starts_with(kValue)) return {std::string(name), ""};
  name.remove_prefix(kValue.size());
  const std::vector<std::string_view> words = split_words(name, ".");
  std::size_t at = words.size();
  while (at > 1 && !is_op_word(words[at - 1])) --at;
  if (at <= 1) at = words.size();  // no such word
  if (words.size() < 2) return {std::string(name), ""};
  const auto start = static_cast<std::size_t>(words[at - 1].data() - name.data());
  const std::string_view op = name.substr(start);
  const graph::OpDef* def = op_of(op);
  const bool several = def != nullptr && op.size() > def->id.size();
  return {std::string(name.substr(0, start - 1)), std::string(op), def,
          several ? std::string(op.substr(def->id.size() + 1)) : ""};
}

bool is_gradient(std::string_view name) {
  return name.starts_with(kGradient);
}

bool is_forward_value(std::string_view name) {
  return name.starts_with(kValue) && !is_backward(name);
}

bool is_trace(const io::WeightFiles& files) {
  if (files.find("logits") != nullptr || files.find("log_probs") != nullptr) return true;
  return std::ranges::any_of(files.tensors(), [](const io::TensorInfo& t) {
    return t.name.starts_with(kValue) || t.name.starts_with(kGradient);
  });
}

std::vector<std::string> trace_order(const io::WeightFiles& files) {
  std::vector<std::string> names, gradients;
  for (const io::TensorInfo& tensor : files.tensors()) {
    (tensor.name.starts_with(kGradient) ? gradients : names).push_back(tensor.name);
  }
  names.insert(names.end(), gradients.rbegin(), gradients.rend());
  std::ranges::stable_sort(names, {}, kind_of_name);
  return names;
}

bool has_plan_order(const io::WeightFiles& files) {
  return files.metadata().contains(convert::kPolicyKey) || files.metadata().contains("mantissa.order");
}

}  // namespace mantissa::lab
