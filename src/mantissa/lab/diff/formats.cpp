#include "mantissa/lab/diff/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/lab/diff/trace_order.h"
#include "mantissa/train/steps/trace_formats.h"

namespace mantissa::lab {
namespace {

std::string field_of(const nlohmann::json& formats, const char* name) {
  const auto found = formats.find(name);
  return found != formats.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

TraceFormats formats_of(const io::WeightFiles& trace) {
  TraceFormats formats;
  const auto entry = trace.metadata().find(train::kFormatsKey);
  if (entry == trace.metadata().end()) return formats;
  const nlohmann::json json = nlohmann::json::parse(entry->second, nullptr, false);
  if (!json.is_object()) return formats;  // of another program
  for (const auto& [name, of] : json.items()) {
    if (!of.is_object()) continue;
    formats.emplace(name,
                    ValueFormats{field_of(of, "store"), field_of(of, "multiply"), field_of(of, "accumulate"),
                                 field_of(of, "interior"), field_of(of, "output")});
  }
  return formats;
}

FormatDifferences compare_formats(const std::vector<std::string>& names, const TraceFormats& a,
                                  const TraceFormats& b) {
  FormatDifferences d;
  d.known_a = !a.empty();
  d.known_b = !b.empty();
  for (const std::string& name : names) {
    const auto in_a = a.find(name), in_b = b.find(name);
    if (in_a == a.end() || in_b == b.end()) continue;
    ++d.compared;
    if (in_a->second == in_b->second) continue;
    if (++d.different > 1) continue;
    d.first = name;
    d.a = in_a->second;
    d.b = in_b->second;
  }
  return d;
}

std::string formats_text(const ValueFormats& a, const ValueFormats& b) {
  struct Field {
    const char *in_a, *in_b;  // verbs
    const std::string &a, &b;
  };
  const Field fields[] = {{"A is", "B is", a.output, b.output},
                          {"A multiplies", "B", a.multiply, b.multiply},
                          {"A adds in", "B in", a.accumulate, b.accumulate},
                          {"A has intermediate results in", "B in", a.interior, b.interior},
                          {"A reads", "B", a.store, b.store}};
  std::string text;
  std::vector<std::pair<std::string, std::string>> said;
  for (const Field& f : fields) {
    const std::pair<std::string, std::string> both{f.a.empty() ? "none" : f.a, f.b.empty() ? "none" : f.b};
    // What is stored and multiplied usually changes with the result.
    if (f.a == f.b || std::ranges::find(said, both) != said.end()) continue;
    text +=
        fmt::format("{}{} {} and {} {}", text.empty() ? "" : "; ", f.in_a, both.first, f.in_b, both.second);
    said.push_back(both);
  }
  return text;
}

std::string to_text(const FormatDifferences& d) {
  if (!d.known_a || !d.known_b) {
    return fmt::format("formats: unknown in {}, which {} not record them",
                       d.known_a   ? "B"
                       : d.known_b ? "A"
                                   : "A and B",
                       d.known_a || d.known_b ? "does" : "do");
  }
  if (d.different == 0) return "";
  const TracedOp op = traced_op(d.first);
  const std::string place = op.op.empty() ? op.scope : op.scope + " " + op.op;
  return fmt::format("formats differ at {} of {}, first at {}: {}", d.different,
                     counted(d.compared, "tensor"), place, formats_text(d.a, d.b));
}

}  // namespace mantissa::lab
