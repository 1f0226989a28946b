#include "mantissa/files/convert/rwkv.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/convert/beside.h"
#include "mantissa/files/convert/gguf_in.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/state.h"
#include "mantissa/files/io/state_weights.h"
#include "mantissa/files/peft/states.h"
#include "mantissa/files/rwkv/checkpoint.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

bool is_rwkv_dtype(io::Dtype dtype) {
  return dtype == io::Dtype::f32 || dtype == io::Dtype::bf16 || dtype == io::Dtype::f16;
}

/// Rewrites all tensors of `source` into the file `to`.
std::optional<Result> rewrite(const io::TensorSource& source, const Request& request, const disk::Target& to,
                              std::map<std::string, std::string> metadata, const kernels::Context& ctx,
                              const std::stop_token& stop) {
  std::vector<OutputTensor> outputs;
  for (const io::TensorInfo& tensor : source.tensors()) outputs.push_back({&tensor, tensor.name});
  metadata = metadata_after(std::move(metadata), outputs, request.change);
  auto done = rewrite_file(source, outputs, request.container(), to, metadata, request.change, ctx, stop);
  if (!done) return std::nullopt;
  Result result;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const io::TensorInfo& tensor = *outputs[i].tensor;
    result.bytes_in += tensor.end - tensor.begin;
    result.bytes_out += static_cast<std::uint64_t>(tensor.count()) * io::bytes_of((*done)[i].to);
  }
  result.tensors = std::move(*done);
  return result;
}

}  // namespace

void check_rwkv_dtype(const Request& request) {
  const std::optional<Scalar>& format = request.change.format;
  if (!format || is_rwkv_dtype(io::dtype_of(*format))) return;
  const fs::path directory = fs::path(request.out).replace_extension();
  throw ConfigError(
      "--dtype {0}: expected f32, bf16 or f16 for a checkpoint of RWKV-LM, got {0}. Fix: --dtype bf16, or a directory: "
      "mantissa convert {1} {2} --dtype {0}",
      name(*format), request.in.path.string(), directory.string());
}

std::optional<Result> convert_rwkv(const Request& request, const kernels::Context& ctx,
                                   const std::stop_token& stop) {
  const rwkv::Checkpoint model = rwkv::open_checkpoint(io::WeightFiles(request.in.weights), request.in.path,
                                                       request.change.format.has_value());
  disk::AtomicDirectory directory(disk::given(request.out, request.overwrite), disk::kModel);
  const fs::path to = directory.beside();
  std::map<std::string, std::string> metadata = model.weights->metadata();
  metadata["format"] = "pt";  // required by transformers
  std::optional<Result> result =
      rewrite(*model.weights, request, to / request.weights_name(), std::move(metadata), ctx, stop);
  if (!result) return std::nullopt;
  const io::Dtype dtype =
      request.change.format ? io::dtype_of(*request.change.format) : dtype_of_model(*model.weights);
  const nlohmann::json config = model::to_json(model.config, std::string(io::torch_name(dtype)));
  disk::write_file_atomic(to / "config.json", config.dump(2) + "\n");
  for (const std::string& name : files_beside(request.in.path)) {
    const fs::path from = request.in.path.parent_path() / name;
    disk::write_file_atomic(to / name, disk::read_text_file(from, kLargestBeside));
    result->copied.push_back(name);
  }
  directory.commit();
  result->notes = model.notes;
  if (config.contains("group_norm_eps")) {
    result->notes.push_back(
        "group_norm_eps in config.json is what RWKV-LM adds in the norm of each head; flash-linear-attention "
        "does not read it and adds head_dim · norm_eps");
  }
  return result;
}

namespace {

bool is_rwkv7(const nlohmann::json& config) {
  return config.is_object() && config.value("model_type", nlohmann::json()) == "rwkv7";
}

/// Returns the weights of a state, with what they are as their metadata.
InputModel model_of_state(const fs::path& folder, std::map<std::string, std::string>& metadata) {
  const io::StateReader state(folder);
  metadata = {
      {kPolicyKey, state.header().policy},
      {kHistoryKey,
       fmt::format("{} of the state of step {}",
                   io::kind_of_weights(io::state_weights(state.tensors().tensors())), state.header().step)},
  };
  const fs::path header = folder / "state.json";
  return {model::parse_model_config(io::parse_json(state.header().model_config, header), header.string()),
          io::open_state_weights(folder / io::kStateTensors),
          {},
          folder};
}

}  // namespace

bool becomes_rwkv_file(const Request& request) {
  if (request.layout != Layout::pth || request.writes_directory()) return false;
  const io::ModelPath& in = request.in;
  switch (in.kind) {
    case io::ModelPath::Kind::gguf:
      return open_gguf(in.weights).config.model_type == "rwkv7";
    case io::ModelPath::Kind::state:
      return is_rwkv7(io::parse_json(io::StateReader(in.path).header().model_config, in.path / "state.json"));
    case io::ModelPath::Kind::model:
      return disk::exists(in.path / "config.json") && is_rwkv7(io::read_json_file(in.path / "config.json"));
    case io::ModelPath::Kind::file:
    case io::ModelPath::Kind::adapter:
      break;
  }
  return false;
}

std::optional<Result> write_rwkv(const Request& request, const kernels::Context& ctx,
                                 const std::stop_token& stop) {
  check_rwkv_dtype(request);
  const bool state = request.in.kind == io::ModelPath::Kind::state;
  std::map<std::string, std::string> of_state;
  InputModel model = state ? model_of_state(request.in.path, of_state) : model_of(request.in, "pth");
  const auto source = rwkv::to_checkpoint(std::move(model.files), model.config, request.in.path);
  for (const io::TensorInfo& t : source->tensors()) {
    if (request.change.format || is_rwkv_dtype(t.dtype)) continue;
    throw DtypeError(
        "{}: expected F32, BF16 or F16 for a checkpoint of RWKV-LM, got {} for {}. Fix: --dtype f32, bf16 or f16",
        request.in.path.string(), io::safetensors_name(t.dtype), name_in_quotes(t.name));
  }
  std::optional<Result> result = rewrite(*source, request, disk::given(request.out, request.overwrite),
                                         state ? of_state : source->metadata(), ctx, stop);
  if (result) {
    result->notes.push_back(
        "the tensors have the names of RWKV-LM; blocks.0.att.v0, v1 and v2, which it expects and does not use, "
        "are zeros");
  }
  return result;
}

bool becomes_states_file(const Request& request) {
  return request.in.kind == io::ModelPath::Kind::adapter && request.layout == Layout::pth &&
         !request.writes_directory() && peft::holds_states(request.in.path);
}

std::optional<Result> write_states(const Request& request, const kernels::Context& ctx,
                                   const std::stop_token& stop) {
  const auto source = peft::to_time_states(request.in.path);
  std::optional<Result> result =
      rewrite(*source, request, disk::given(request.out, request.overwrite), source->metadata(), ctx, stop);
  if (result) {
    result->notes.push_back(
        "the tensors have the names of RWKV-PEFT, and the states are transposed, as it keeps them");
  }
  return result;
}

}  // namespace mantissa::convert
