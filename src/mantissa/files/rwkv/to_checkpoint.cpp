// The weights of a Hugging Face model under the names of RWKV-LM.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/rwkv/checkpoint.h"
#include "mantissa/files/rwkv/names.h"
#include "mantissa/files/rwkv/renamed_source.h"

namespace mantissa::rwkv {
namespace {

bool differs(double a, double b) {
  return std::abs(a / b - 1) > 1e-12;
}

/// Throws if the model has constants that a checkpoint of RWKV-LM cannot describe.
void check_constants(const model::ModelConfig& config) {
  const nlohmann::json json = model::to_json(config, "float32");
  const auto refuse = [](const std::string& what) {
    throw ConfigError("--format pth: {}. Fix: write another --format", what);
  };
  if (config.tie_word_embeddings)
    refuse(
        "RWKV-LM has a head of its own, and tie_word_embeddings in config.json ties this model's to the embedding");
  if (const double eps = json.value("norm_eps", kNormEps); differs(eps, kNormEps))
    refuse(fmt::format("RWKV-LM adds {} in its norms, and this model {} (norm_eps)", kNormEps, eps));
  if (const double eps = head_norm_eps(config); differs(eps, kHeadNormEps)) {
    refuse(fmt::format("RWKV-LM adds {} in the norm of each head, and this model {} (head_dim · norm_eps)",
                       kHeadNormEps, eps));
  }
}

/// The tensors of layer 0 that RWKV-LM expects and does not use.
std::vector<RenamedSource::Entry> unused_entries(const model::ModelConfig& config, io::Dtype dtype) {
  const std::int64_t rank = model::to_json(config, "float32").at("v_low_rank_dim"),
                     width = config.hidden_size;
  std::vector<RenamedSource::Entry> entries;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    io::TensorInfo tensor{name, dtype, std::move(shape), 0, 0};
    tensor.end = static_cast<std::uint64_t>(tensor.count()) * io::bytes_of(dtype);
    entries.push_back({std::move(tensor), ""});
  };
  add("blocks.0.att.v0", {1, 1, width});
  add("blocks.0.att.v1", {width, rank});
  add("blocks.0.att.v2", {rank, width});
  return entries;
}

}  // namespace

double head_norm_eps(const model::ModelConfig& config) {
  const nlohmann::json json = model::to_json(config, "float32");
  return json.value("group_norm_eps", json.at("head_dim").get<double>() * json.at("norm_eps").get<double>());
}

std::shared_ptr<const io::TensorSource> to_checkpoint(io::WeightFiles files, const model::ModelConfig& config,
                                                      const std::filesystem::path& path) {
  check_constants(config);
  std::vector<RenamedSource::Entry> entries;
  const graph::Graph graph = model::build_log_prob(config, 1, 1, false);
  for (const graph::ValueId p : graph.parameters()) {
    const std::string& name = graph.value(p).name;
    const std::optional<OtherName> other = rwkv_name(name);
    if (!other) throw InternalError("RWKV-LM has no name for {}", name);
    const std::vector<std::int64_t> expected = graph.value(p).shape.sizes();
    const io::TensorInfo* stored = files.find(name);
    if (stored == nullptr) throw FileError("{}: has no tensor {}", path.string(), name_in_quotes(name));
    if (stored->shape != expected) {
      throw ShapeError("{}: tensor {} is [{}], but config.json requires [{}]", path.string(),
                       name_in_quotes(name), fmt::join(stored->shape, ", "), fmt::join(expected, ", "));
    }
    const auto bytes = static_cast<std::uint64_t>(stored->count()) * io::bytes_of(stored->dtype);
    entries.push_back({{other->name, stored->dtype, rwkv_shape(expected, other->form), 0, bytes},
                       name,
                       other->form == Form::transposed});
  }
  const io::TensorInfo* like = files.find("model.layers.0.attn.w_lora.lora.0.weight");
  for (RenamedSource::Entry& entry : unused_entries(config, like->dtype)) entries.push_back(std::move(entry));
  std::map<std::string, std::string> metadata = files.metadata();
  metadata.erase("format");
  return std::make_shared<const RenamedSource>(std::move(files), path, std::move(entries),
                                               std::move(metadata));
}

}  // namespace mantissa::rwkv
