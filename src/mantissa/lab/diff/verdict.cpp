// The result of a comparison in one sentence.
#include <fmt/format.h>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/lab/diff/diff.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

std::string of_equal(const convert::TensorDifferences& t) {
  const std::string tensors = counted(t.compared, "tensor");
  if (t.different.empty()) return fmt::format("{}, every byte", tensors);
  return fmt::format("{}, in value; {} in dtype, signs of zeros or bits of NaN (--bitwise: different)",
                     tensors, counted(t.different.size(), "tensor", "differs", "differ"));
}

std::string of_unmatched(const convert::TensorDifferences& t) {
  if (t.only_a.empty()) return fmt::format("{} only in B", counted(t.only_b.size(), "tensor", "is", "are"));
  const std::string in_a = fmt::format("{} only in A", counted(t.only_a.size(), "tensor", "is", "are"));
  return t.only_b.empty() ? in_a : fmt::format("{}, {} only in B", in_a, t.only_b.size());
}

/// Names the first difference. `trace`: as an op.
std::string of_different(const convert::TensorDifferences& t, bool bitwise, bool trace) {
  const std::vector<const convert::DifferentTensor*> all = t.differing(bitwise);
  if (all.empty()) return of_unmatched(t);
  const TracedOp op = traced_op(all[0]->name);
  const bool is_op = trace && !op.op.empty();
  return fmt::format("the first {} that differs is {}: {}", is_op ? "op" : "tensor",
                     is_op ? op.scope + " " + op.op : all[0]->name, extent_text(*all[0], bitwise));
}

std::string of_progress(const std::vector<MetricDifference>& progress) {
  const MetricDifference& first = progress.front();
  return fmt::format("state.json differs: {} {} → {}", first.metric, short_text(first.a),
                     short_text(first.b));
}

std::string of_state(const StateDifferences& s, bool bitwise) {
  return s.tensors.equal(bitwise) ? of_progress(s.progress) : of_different(s.tensors, bitwise, false);
}

std::string of_config(const std::vector<ConfigDifference>& config) {
  for (const ConfigDifference& d : config) {
    if (d.counts()) return fmt::format("the configs differ: {} {} → {}", d.key, d.a, d.b);
  }
  return "";
}

std::string step_text(const std::optional<std::int64_t>& step) {
  return step ? fmt::format("at step {}", *step) : "without a step";
}

std::string of_runs(const RunDifferences& r, bool bitwise) {
  if (r.metrics && r.metrics->first_different) {
    const MetricDifference& first = r.metrics->first.front();
    return fmt::format("the first step that differs is {}: {} {} → {}", *r.metrics->first_different,
                       first.metric, short_text(first.a), short_text(first.b));
  }
  if (r.state)
    return fmt::format("no metric differs, but the state of step {}: {}", r.state->step_a,
                       of_state(*r.state, bitwise));
  if (r.model && !r.model->equal(bitwise)) return "the models: " + of_different(*r.model, bitwise, false);
  if (r.metrics && !r.metrics->equal()) {
    return fmt::format("A ends {}, B {}; the steps of both are equal", step_text(r.metrics->last_a),
                       step_text(r.metrics->last_b));
  }
  if (r.model_in_a != r.model_in_b) return fmt::format("only {} has a model", r.model_in_a ? "A" : "B");
  return of_config(r.config);
}

std::string of_equal_runs(const RunDifferences& r) {
  std::string text = fmt::format("{} of metrics, {}", counted(r.metrics ? r.metrics->compared : 0, "step"),
                                 counted(r.equal_states.size(), "state"));
  if (r.model) text += fmt::format("; the model: {}", of_equal(*r.model));
  return text;
}

std::string sentence(const Diff& d) {
  if (d.equal()) {
    if (d.runs) return "equal: " + of_equal_runs(*d.runs);
    return "equal: " + of_equal(d.states ? d.states->tensors : *d.tensors);
  }
  if (d.runs) return "different: " + of_runs(*d.runs, d.bitwise);
  if (d.states && d.states->equal(d.bitwise)) return "different: " + of_config(d.config);
  if (d.states) return "different: " + of_state(*d.states, d.bitwise);
  return "different: " + of_different(*d.tensors, d.bitwise, d.is_trace());
}

}  // namespace

std::string extent_text(const convert::DifferentTensor& t, bool bitwise) {
  if (!t.comparable) {
    return fmt::format("shape {} → {}{}", io::shape_text(t.a.shape), io::shape_text(t.b.shape),
                       t.reordered() ? ", whose elements may have another order: not compared" : "");
  }
  const convert::ElementDifferences& e = t.elements;
  if (bitwise) {
    if (t.a.dtype != t.b.dtype)
      return fmt::format("dtype {} → {}", io::safetensors_name(t.a.dtype), io::safetensors_name(t.b.dtype));
    if (t.a.shape != t.b.shape)
      return fmt::format("shape {} → {}", io::shape_text(t.a.shape), io::shape_text(t.b.shape));
    return fmt::format("{} of {} values", e.differ + e.zero_signs + e.nan_bits, e.count);
  }
  std::string text = fmt::format("{} of {} values", e.differ, e.count);
  if (e.differ > e.nonfinite && convert::have_numbers(t.a.dtype, t.b.dtype)) {
    text += t.unit ? fmt::format(", at most {:.3g} ulp of {}", e.max_ulp, name(*t.unit))
                   : fmt::format(", at most {:.3g}", e.max_abs);
  }
  if (e.nonfinite > 0) text += fmt::format(", {} of them inf or NaN on a side", e.nonfinite);
  return text;
}

std::string short_text(const nlohmann::json& value) {
  constexpr std::size_t kMost = 40;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

std::string verdict(const Diff& d) {
  return printable(sentence(d));
}

std::vector<std::string> trace_verdicts(const Diff& d) {
  std::vector<std::string> lines;
  if (d.bitwise || !d.is_trace() || d.equal()) return lines;
  if (const std::string formats = d.formats ? to_text(*d.formats) : ""; !formats.empty())
    lines.push_back(printable(formats));
  if (!d.rounding) return lines;
  const std::string rounding = to_text(*d.rounding);
  for (const std::string_view line : split_words(rounding, "\n")) lines.push_back(printable(line));
  return lines;
}

}  // namespace mantissa::lab
