#include "mantissa/train/steps/trace_place.h"

#include "mantissa/core/disk/output.h"
#include "mantissa/files/io/results.h"

namespace mantissa::train {
void check_place(const TraceOptions& o) {
  if (o.out.empty()) return;
  const bool again = io::is_trace_file(o.out);
  std::vector<std::filesystem::path> inputs;
  if (!again) {  // a trace in the model's directory is not a part of the model
    inputs = {o.model.directory, o.model.weights};
    if (o.model.adapter != nullptr) inputs.push_back(o.model.adapter->path());
    inputs = disk::with_files(inputs);
  }
  inputs.insert(inputs.end(), {o.tokens, o.deepspeed});
  disk::check_output({o.out, disk::Shape::stream, o.overwrite || again}, inputs);
}

}  // namespace mantissa::train
