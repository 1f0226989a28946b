#include "mantissa/train/steps/trace_formats.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "mantissa/engine/plan/explain.h"

namespace mantissa::train {
namespace {

using nlohmann::json;

json formats_in(const plan::PlanRow& row) {
  json formats = json::object();
  const auto add = [&](const char* key, const std::string& format) {
    if (format != plan::kNoFormat) formats[key] = format;
  };
  add("store", row.stored);
  add("multiply", row.multiplied);
  add("accumulate", row.accumulated);
  return formats;
}

/// Returns the input whose values the step only rounds or adds to a sum of them, or kNoBuffer.
plan::BufferId passed_on(const plan::Step& s) {
  switch (s.op->duty) {
    case graph::Duty::conversion:
    case graph::Duty::rounding:
      return s.inputs.front().buffer;
    case graph::Duty::collect:
      return s.inputs.back().buffer;
    default:
      return plan::kNoBuffer;
  }
}

/// Returns the formats of the step that computed each buffer.
std::vector<json> formats_by_buffer(const plan::Program& p) {
  const std::vector<plan::PlanRow> rows = plan::plan_rows(p);
  std::vector<json> made(p.buffers.size());
  std::size_t row = 0;
  for (const plan::Step& s : p.steps) {
    json formats = formats_in(rows[row++]);
    if (!s.op->interior.empty()) formats["interior"] = rows[row++].output;
    if (const plan::BufferId from = passed_on(s); from != plan::kNoBuffer) {
      const json& before = made[static_cast<std::size_t>(from)];
      if (before.is_object()) formats = before;
    }
    for (const plan::BufferId out : s.outputs) {
      const plan::Buffer& buffer = p.buffer(out);
      formats["output"] = buffer.integer ? std::string("int32") : std::string(name(buffer.type));
      made[static_cast<std::size_t>(out)] = formats;
    }
  }
  return made;
}

}  // namespace

std::string formats_of(const plan::Program& p) {
  const std::vector<json> made = formats_by_buffer(p);
  json out = json::object();
  const auto add = [&](const std::string& name, plan::BufferId id) {
    if (id != plan::kNoBuffer && made[static_cast<std::size_t>(id)].is_object())
      out[name] = made[static_cast<std::size_t>(id)];
  };
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].value != graph::kNone && p.buffers[b].home == plan::Home::activation)
      add("value." + p.buffers[b].name, static_cast<plan::BufferId>(b));
  }
  add("logits", p.find("logits"));
  add("log_probs", p.find("logits"));
  for (const plan::Slot& slot : p.slots) add("grad." + slot.name, slot.gradient);
  return out.dump();
}

}  // namespace mantissa::train
