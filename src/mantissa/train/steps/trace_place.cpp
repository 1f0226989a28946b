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
  const auto add = [&](const std::filesystem::path& input) {
    if (!input.empty()) inputs.push_back(input);
  };
  add(o.tokens);
  add(o.deepspeed);
  if (!again) {  // a trace in the model's directory is not a part of the model
    add(o.model.directory);
    add(o.model.weights);
    if (o.model.adapter != nullptr) add(o.model.adapter->path());
  }
  disk::check_output(o.out, inputs, o.overwrite || again);
}

}  // namespace mantissa::train
