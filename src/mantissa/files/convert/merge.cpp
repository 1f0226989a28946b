#include "mantissa/files/convert/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/core/tensor/narrow_rows.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/peft/reader.h"
#include "mantissa/files/peft/targets.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

/// A larger share of the adapter that is lost changes what it does noticeably.
constexpr double kLargeLoss = 0.1;

io::ModelPath base_of(const fs::path& path) {
  const io::ModelPath source = io::open_model(path);
  if (source.kind == io::ModelPath::Kind::model && disk::exists(source.path / "config.json")) return source;
  const bool gguf = source.kind == io::ModelPath::Kind::gguf, rwkv = is_rwkv_file(source);
  throw FileError(fmt::format("{}: is not a model directory with config.json; {}", path.string(),
                              gguf   ? "convert it first: mantissa convert IN.gguf DIR"
                              : rwkv ? "convert it first: mantissa convert IN.pth DIR"
                                     : "give the directory of the base model"));
}

/// Returns the name of a weight in the files, which of the bare trunk omit its prefix.
std::string stored_name(const io::WeightFiles& files, const model::ModelConfig& config,
                        const std::string& name) {
  const std::string_view prefix = config.family->trunk_prefix;
  if (files.find(name) != nullptr) return name;
  if (std::string bare = name.substr(std::min(prefix.size(), name.size()));
      name.starts_with(prefix) && files.find(bare) != nullptr)
    return bare;
  throw FileError(fmt::format("{}: tensor \"{}\" is missing; the adapter changes it",
                              files.shards().empty() ? "the base" : files.shards().front().path().string(),
                              name));
}

void check_weight(const io::WeightFiles& files, const io::TensorInfo& tensor, const model::LinearLayer& layer,
                  const Change& change) {
  const std::vector<std::int64_t> shape =
      layer.in_out ? std::vector{layer.in, layer.out} : std::vector{layer.out, layer.in};
  if (tensor.shape != shape) {
    throw ShapeError(
        fmt::format("{}: tensor \"{}\" does not have the shape that config.json requires, {} × {}",
                    files.path_of(tensor.name).string(), tensor.name, shape[0], shape[1]));
  }
  const bool scaled = files.scale_of(tensor.name) != nullptr && io::bytes_of(tensor.dtype) == 1;
  if (!io::scalar_of(tensor.dtype) || (scaled && !change.format)) {
    throw DtypeError(fmt::format(
        "{}: tensor \"{}\" is {}{}, to which nothing can be added; {}", files.path_of(tensor.name).string(),
        tensor.name, io::safetensors_name(tensor.dtype), scaled ? " with a separate scale" : "",
        scaled ? "write other numbers, such as --dtype bf16" : "load the weights before quantization"));
  }
}

}  // namespace

std::optional<Merge> merge(const MergeRequest& request, const kernels::Context& ctx,
                           const std::stop_token& stop) {
  Request rewrite;
  rewrite.in = base_of(request.model);
  rewrite.out = request.out;
  rewrite.change = request.change;
  rewrite.overwrite = request.overwrite;
  const std::filesystem::path adapter[] = {io::adapter_folder(request.adapter)};
  disk::check_output({request.out, disk::Shape::directory, true, "OUT"}, adapter);
  check_place(rewrite);
  const fs::path config_file = rewrite.in.path / "config.json";
  const model::ModelConfig config =
      model::parse_model_config(io::read_json_file(config_file), config_file.string());
  peft::PeftAdapter read = peft::read_adapter(request.adapter, config);
  if (read.adapter->states) {
    throw FileError(
        "{}: expected an adapter of linear layers, got initial states of recurrences, which no weight can hold. "
        "Fix: use them beside the model with --adapter, or write RWKV-PEFT's file: mantissa convert {} STATES.pth",
        request.adapter.string(), request.adapter.string());
  }
  const io::WeightFiles base(rewrite.in.weights), tensors(read.tensors);
  const std::optional<QuantFormat> blocks = request.base ? *request.base : read.base_blocks;
  NarrowRows narrow;
  model::Adapter adapters = *read.adapter;
  adapters.layers = peft::modules_of(adapters.layers, config);
  const std::size_t dense = model::linear_layers(config).size();  // the first ones; experts are not in blocks
  const std::vector<model::LinearLayer> modules = peft::modules_of(config);
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const model::LinearLayer& layer = modules[i];
    std::optional<QuantFormat> held = i < dense ? blocks : std::nullopt;
    if (held && !takes_width(*held, static_cast<std::size_t>(layer.in))) {
      narrow[*held].push_back(layer.scope + ".weight");
      held.reset();
    }
    if (adapters.find(layer.scope) == nullptr && !held) continue;
    const std::string name = stored_name(base, config, layer.scope + ".weight");
    check_weight(base, *base.find(name), layer, request.change);
    rewrite.adapters[name] =
        std::make_shared<const AdaptedWeight>(layer, adapters, tensors, base, name, held, ctx);
  }
  Merge merge;
  merge.model = request.model;
  merge.adapter = request.adapter;
  merge.out = request.out;
  std::optional<Result> result = convert(rewrite, ctx, stop);
  if (!result) return std::nullopt;
  merge.result = std::move(*result);
  merge.layers = adapters.layers.size();
  if (blocks) {
    merge.notes.push_back(
        fmt::format("the linear layers of the base have their values in {}{}; --base params adds to the "
                    "weights of {}",
                    traits(*blocks).name, request.base ? "" : ", which the adapter was trained on",
                    request.model.string()));
    std::ranges::move(narrow_rows_notes(narrow), std::back_inserter(merge.notes));
  }
  if (read.base_plain && !request.base) {
    merge.notes.push_back(
        fmt::format("the adapter was trained on a base in {}; it is added to the weights of {} as they are",
                    traits(*read.base_plain).name, request.model.string()));
  }
  for (const RewrittenTensor& t : merge.result.tensors) {
    if (t.merge) merge.loss.merge(*t.merge);
  }
  merge.notes.insert(merge.notes.end(), read.notes.begin(), read.notes.end());
  merge.notes.insert(merge.notes.end(), merge.result.notes.begin(), merge.result.notes.end());
  merge.warnings = merge.result.warnings;
  if (merge.loss.share() > kLargeLoss) {
    merge.warnings.push_back(
        fmt::format("the rounding errors are {:.3g} % of the adapter's change; keep its numbers with --dtype "
                    "f32, or use it beside the base with --adapter",
                    100 * merge.loss.share()));
  }
  return merge;
}

std::string to_text(const Merge& m) {
  std::string formats;
  for (const RewrittenTensor& t : m.result.tensors) {
    if (!t.merge || formats.find(t.type_after()) != std::string::npos) continue;
    formats += (formats.empty() ? "" : ", ") + std::string(t.type_after());
  }
  std::string text = fmt::format(
      "merged  {} into {}: {}, written as {} to {}\n"
      "lost    the rounding errors are {:.3g} % of the adapter's change; {:.3g} % of the changed elements "
      "round to the base's number",
      m.adapter.string(), m.model.string(), counted(m.layers, "weight"), formats, m.out.string(),
      100 * m.loss.share(), 100 * m.loss.vanished_share());
  for (const std::string& note : m.notes) text += "\nnote    " + note;
  return text;
}

std::string to_json(const Merge& m) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const RewrittenTensor& t : m.result.tensors) {
    if (!t.merge) continue;
    tensors.push_back({{"name", t.name},
                       {"dtype", t.type_after()},
                       {"lost", t.merge->share()},
                       {"vanished", t.merge->vanished_share()}});
  }
  return nlohmann::ordered_json{{"out", m.out.string()},         {"layers", m.layers},
                                {"lost", m.loss.share()},        {"vanished", m.loss.vanished_share()},
                                {"tensors", std::move(tensors)}, {"notes", m.notes},
                                {"warnings", m.warnings}}
      .dump(2);
}

}  // namespace mantissa::convert
