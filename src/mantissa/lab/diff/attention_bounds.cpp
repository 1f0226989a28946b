#include "mantissa/lab/diff/attention_bounds.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/round.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

/// Returns the root mean square of the finite values of a tensor; 0 if there are none.
double rms_of(const io::WeightFiles& files, const io::TensorInfo& tensor) {
  if (tensor.count() == 0 || !io::scalar_of(tensor.dtype)) return 0;
  std::vector<double> values(static_cast<std::size_t>(tensor.count()));
  files.read_f64(tensor.name, values);
  double squares = 0;
  std::size_t count = 0;
  for (const double x : values) {
    if (!std::isfinite(x)) continue;
    squares += x * x;
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

/// Returns the distance of the smallest number of a plain format from 0; 0 for other formats.
double smallest(const std::string& format) {
  const auto plain = parse_scalar(format);
  return plain ? ulp(0, *plain) : 0;
}

bool is_attention(const TracedOp& op) {
  return op.def != nullptr && op.def->kind == graph::OpKind::attention;
}

/// Returns true for the gradients of q and k of an attention.
bool is_gradient_of_scores(const TracedOp& op) {
  const bool backward = is_attention(op) && op.def->gradient == nullptr;
  return backward && (op.result == "q" || op.result == "k");
}

/// The backward pass of one attention in two traces.
struct Backward {
  double smallest = 0;        // number of the formats of its P and dS
  double query = 0, key = 0;  // root mean squares of the gradients of q and k, of the larger side
  double rows = 0;            // of the batch
  double largest_input = 0;   // root mean square of the values in its scope before it

  void include(const io::WeightFiles& files, const TraceFormats& formats, const std::string& scope) {
    for (const io::TensorInfo& t : files.tensors()) {
      const TracedOp op = traced_op(t.name);
      const bool here = op.scope == scope;
      if (here && is_gradient_of_scores(op)) {
        double& size = op.result == "q" ? query : key;
        size = std::max(size, rms_of(files, t));
        rows = std::max(rows, static_cast<double>(t.shape.empty() ? 1 : t.shape.front()));
        if (const auto found = formats.find(t.name); found != formats.end())
          smallest = std::max(smallest, lab::smallest(found->second.interior));
      } else if (is_forward_value(t.name) && !(is_attention(op) && !op.result.empty()) &&
                 (here || op.scope.starts_with(scope + "."))) {
        largest_input = std::max(largest_input, rms_of(files, t));
      }
    }
  }
};

/// Returns the scope of the attention whose operands the weight computes, or "". Weights that multiply its
/// result, such as those of o_proj, do not depend on dS.
std::string attention_scope(std::string_view weight, const io::WeightFiles& files) {
  const std::string_view place = weight.substr(weight.find('.') + 1);  // without "grad."
  const std::string_view module = place.substr(0, place.rfind('.'));
  std::string found;
  for (const io::TensorInfo& t : files.tensors()) {
    if (!is_forward_value(t.name)) continue;
    TracedOp op = traced_op(t.name);
    if (is_attention(op) && op.result.empty() && place.starts_with(op.scope + ".")) {
      found = std::move(op.scope);
    } else if (op.scope == module && !found.empty()) {
      return "";
    }
  }
  return found;
}

}  // namespace

double sharpness(const std::string& name, const io::WeightFiles& a, const io::WeightFiles& b) {
  const TracedOp op = traced_op(name);
  if (!is_attention(op) || !op.result.empty() || op.def->gradient == nullptr) return 0;
  const std::string exps = name + ".lse";
  const io::WeightFiles& files = a.find(exps) != nullptr ? a : b;
  const io::TensorInfo* stored = files.find(exps);
  if (stored == nullptr || stored->count() == 0 || !io::scalar_of(stored->dtype)) return 0;
  std::vector<double> values(static_cast<std::size_t>(stored->count()));
  files.read_f64(exps, values);
  const double log_rows = std::log(static_cast<double>(stored->shape.empty() ? 1 : stored->shape.front()));
  double squares = 0;
  std::size_t count = 0;
  for (const double lse : values) {
    if (!std::isfinite(lse)) continue;  // a row without a score
    const double size = std::max(0.0, std::abs(lse) - log_rows);
    squares += size * size;
    ++count;
  }
  if (count == 0) return 0;
  const double size = std::sqrt(squares / static_cast<double>(count));
  return std::min(size, std::sqrt(size * log_rows));
}

double range_error(const std::string& name, const io::WeightFiles& a, const io::WeightFiles& b,
                   const TraceFormats& formats_a, const TraceFormats& formats_b) {
  std::string scope = attention_scope(name, a);
  if (scope.empty()) scope = attention_scope(name, b);
  if (scope.empty()) return 0;
  Backward pass;
  pass.include(a, formats_a, scope);
  pass.include(b, formats_b, scope);
  if (pass.smallest == 0) return 0;
  // A gradient of size g is a sum of up to n terms dS · k, so dS has the size g / (√n · k).
  const double least = std::min(pass.query, pass.key);
  const double size = least / (std::sqrt(pass.rows) * pass.largest_input);
  return size > 0 ? std::min(1.0, pass.smallest / 2 / size) : 1;
}

}  // namespace mantissa::lab
