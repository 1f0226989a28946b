#include "mantissa/train/steps/trace_place.h"

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/output.h"

namespace mantissa::train {
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

}  // namespace

void check_place(const TraceOptions& o) {
  if (o.out.empty()) return;
  const bool again = is_trace(o.out);
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
