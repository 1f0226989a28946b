#include "mantissa/lab/diff/diff.h"

#include <algorithm>

#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/state_weights.h"
#include "mantissa/files/rwkv/checkpoint.h"
#include "mantissa/files/rwkv/generation.h"
#include "mantissa/lab/diff/trace_order.h"

namespace mantissa::lab {
namespace {

io::WeightFiles open(const Subject& subject, bool masters) {
  return masters ? io::open_state_weights(subject.weights) : io::WeightFiles(subject.weights);
}

/// Gives the weights of RWKV-LM their names and shapes in Hugging Face's layout if the other side has those.
void rename_one(io::WeightFiles& a, const Subject& of_a, io::WeightFiles& b, const Subject& of_b) {
  const bool rwkv_a = rwkv::has_rwkv_names(a.tensors()), rwkv_b = rwkv::has_rwkv_names(b.tensors());
  if (rwkv_a == rwkv_b) return;
  io::WeightFiles& files = rwkv_a ? a : b;
  files =
      io::WeightFiles(rwkv::open_checkpoint(std::move(files), rwkv_a ? of_a.path : of_b.path, true).weights);
}

/// Returns the order of a comparison of traces: that of the plan if one of the files has it.
std::vector<std::string> order_of_traces(const io::WeightFiles& a, const io::WeightFiles& b) {
  std::vector<std::string> names = trace_order(a);
  if (has_plan_order(a) || !has_plan_order(b)) return names;
  std::vector<std::string> ordered;
  for (std::string& name : trace_order(b)) {
    if (a.find(name) != nullptr) ordered.push_back(std::move(name));
  }
  std::erase_if(names, [&](const std::string& name) { return b.find(name) != nullptr; });
  ordered.insert(ordered.end(), names.begin(), names.end());
  return ordered;
}

/// Compares files of tensors. Next to a checkpoint, a state stands for its weights.
convert::TensorDifferences compare_files(const Subject& a, const Subject& b, const runtime::Device& device) {
  using Kind = Subject::Kind;
  io::WeightFiles files_a = open(a, a.kind == Kind::state), files_b = open(b, b.kind == Kind::state);
  if (a.kind != Kind::trace) rename_one(files_a, a, files_b, b);
  if (a.kind == Kind::state || b.kind == Kind::state) {
    files_a = io::with_joined_experts(std::move(files_a));
    files_b = io::with_joined_experts(std::move(files_b));
  }
  if (a.kind == Kind::trace) {
    return convert::compare_tensors({&files_a, order_of_traces(files_a, files_b)},
                                    {&files_b, trace_order(files_b)}, convert::ShapeRule::rows,
                                    device.host());
  }
  return convert::compare_tensors({&files_a, state_order(files_a)}, {&files_b, state_order(files_b)},
                                  convert::ShapeRule::exact, device.host());
}

}  // namespace

bool Diff::equal() const {
  if (runs) return runs->equal(bitwise);
  const bool same_config = std::ranges::none_of(config, &ConfigDifference::counts);
  if (states) return same_config && states->equal(bitwise);
  return tensors->equal(bitwise);
}

Diff diff(const std::filesystem::path& a, const std::filesystem::path& b, bool bitwise,
          const runtime::Device& device) {
  using Kind = Subject::Kind;
  Diff result;
  result.bitwise = bitwise;
  std::tie(result.a, result.b) = matched(find_subject(a), find_subject(b));
  if (result.a.kind == Kind::run) {
    result.runs = compare_runs(result.a.path, result.b.path, bitwise, device);
  } else if (result.a.kind == Kind::state && result.b.kind == Kind::state) {
    result.states = compare_states(result.a.path, result.b.path, device);
    result.config =
        compare_configs(read_state_header(result.a.path).config_toml, result.a.path / "state.json",
                        read_state_header(result.b.path).config_toml, result.b.path / "state.json");
  } else {
    result.tensors = compare_files(result.a, result.b, device);
    if (result.is_trace()) {
      const io::WeightFiles files_a = open(result.a, false), files_b = open(result.b, false);
      result.formats =
          compare_formats(order_of_traces(files_a, files_b), formats_of(files_a), formats_of(files_b));
      if (!bitwise && !result.tensors->differing(false).empty())
        result.rounding = judge_rounding(*result.tensors, files_a, files_b);
    }
  }
  return result;
}

}  // namespace mantissa::lab
