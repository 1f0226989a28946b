#include "mantissa/app/api/trace.h"

#include "mantissa/app/api/internal.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/train/steps/trace.h"

namespace mantissa::api {

Trace trace(const TraceOptions& o, std::stop_token stop) {
  train::TraceOptions t;
  t.model = source_of(o.model);
  t.tokens = o.tokens;
  t.ids = o.ids;
  t.labels = o.labels;
  t.out = o.out;
  t.overwrite = o.overwrite;
  t.unconverted = o.unconverted;
  t.grads = o.grads;
  t.values = o.values;
  t.policy = policy_for(o.precision, t.model, o.grads);
  t.deepspeed = o.precision.deepspeed;
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
