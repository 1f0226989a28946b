#include "mantissa/api/trace.h"

#include <vector>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/io/output.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/plan/rules.h"
#include "mantissa/train/trace.h"

namespace mantissa::api {
namespace {

/// Returns true for a file that an earlier trace wrote.
bool is_trace(const std::filesystem::path& path) {
  try {
    const io::SafetensorsReader file(path);
    return file.metadata().contains("mantissa.policy") && file.find("logits") != nullptr &&
           file.find("log_probs") != nullptr && file.find("loss") != nullptr;
  } catch (const FileError&) {
    return false;
  }
}

/// Throws FileError if `o.out` must not be written.
void check_place(const TraceOptions& o, const weights::ModelSource& source) {
  if (o.out.empty()) return;
  std::vector<std::filesystem::path> inputs;
  for (const std::filesystem::path& input : {o.tokens, std::filesystem::path(o.precision.deepspeed)}) {
    if (!input.empty()) inputs.push_back(input);
  }
  const bool again = is_trace(o.out);  // a trace in the model's directory is not a part of the model
  for (const std::filesystem::path& part : {source.directory, source.weights}) {
    if (!part.empty() && !again) inputs.push_back(part);
  }
  io::check_output(o.out, inputs, o.overwrite || again);
}

}  // namespace

Trace trace(const TraceOptions& o, std::stop_token stop) {
  train::TraceOptions t;
  t.model = source_of(o.model);
  check_place(o, t.model);
  t.tokens = o.tokens;
  t.ids = o.ids;
  t.labels = o.labels;
  t.out = o.out;
  t.unconverted = o.unconverted;
  t.grads = o.grads;
  t.values = o.values;
  t.policy = policy_for(o.precision, nullptr, o.grads);
  t.stop = std::move(stop);
  t.check = plan::check_rules;
  train::TraceSummary s = train::write_trace(t, *device_for(o.hardware));
  Trace trace{s.loss, s.predicted, {}, s.interrupted};
  for (train::TracedTensor& from : s.tensors) {
    trace.tensors.push_back({std::move(from.name), std::string(io::safetensors_name(from.dtype)),
                             std::move(from.shape), std::move(from.bytes)});
  }
  return trace;
}

}  // namespace mantissa::api
