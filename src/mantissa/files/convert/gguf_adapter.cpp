#include "mantissa/files/convert/gguf_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/files/convert/gguf_values.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/convert/pieces.h"
#include "mantissa/files/gguf/header_writer.h"
#include "mantissa/files/gguf/write_config.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/reader.h"
#include "mantissa/files/peft/states.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;
using gguf::TensorType;

/// Opens the base of an adapter.
InputModel open_base(const fs::path& adapter) {
  const fs::path file = adapter / io::kAdapterConfig;
  const std::string base = peft::parse_config(io::read_json_file(file), file).base;
  if (base.empty() || !disk::exists(base))
    throw FileError(
        "{}: its base {} is not here, and gives the names and the order of rows in GGUF files. Fix: write the "
        "base's directory as \"base_model_name_or_path\"",
        file.string(), base.empty() ? "has no name" : in_quotes(base));
  return model_of(io::open_model(base), "gguf");
}

class AdapterWriter {
 public:
  AdapterWriter(const Request& request, const kernels::Context& ctx)
      : request_(request),
        ctx_(ctx),
        base_(open_base(request.in.path)),
        architecture_(gguf::writable_architecture(base_.config)),
        peft_(peft::read_adapter(request.in.path, base_.config)),
        files_(peft_.tensors) {
    refuse_others();
    for (const model::LinearLayer& layer : model::linear_layers(base_.config)) {
      if (peft_.adapter->find(layer.scope) != nullptr) add(layer);
    }
    if (sources_.empty()) refuse("adapts no linear layer");
  }

  std::optional<Result> run(const std::stop_token& stop) {
    const std::string header = write_header();
    disk::AtomicFile file(disk::given(request_.out, request_.overwrite));
    file.reserve(stored_.back().begin + (stored_.back().bytes() + 31) / 32 * 32);
    file.write_at(0, std::as_bytes(std::span(header)));
    std::vector<ErrorStats> errors(sources_.size());
    for_each_on_threads(ctx_, sources_.size(), [&](std::size_t i, int) {
      std::uint64_t at = stored_[i].begin;
      for (const RowRange& rows : row_ranges(sources_[i])) {
        if (stop.stop_requested()) return;
        std::vector<std::byte> out;
        errors[i].merge(encode_rows(files_, sources_[i], stored_[i].type, rows, request_.change, out));
        file.write_at(at, out);
        at += out.size();
      }
    });
    if (stop.stop_requested()) return std::nullopt;
    for (std::size_t i = 0; i < sources_.size(); ++i) result_.tensors[i].errors = errors[i];
    file.commit();
    result_.notes = peft_.notes;
    result_.notes.push_back(
        fmt::format("an adapter of {} for llama.cpp's {}: load it beside the base in GGUF, with --lora",
                    counted(sources_.size() / 2, "linear layer"), architecture_.name));
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(
        "{}: {}, which llama.cpp does not add to a model. Fix: add the adapter into its base, and "
        "convert the result: {}",
        request_.in.path.string(), what,
        shell_words(std::array<std::string, 5>{"mantissa", "merge", peft_.base, request_.in.path.string(),
                                               "MERGED"}));
  }

  void refuse_others() const {
    if (peft_.adapter->dora) refuse("has the magnitudes of DoRA");
    if (!peft_.adapter->heads.empty()) refuse("has a head of its own");
    for (const model::LinearLayer& layer : model::expert_layers(base_.config)) {
      if (peft_.adapter->find(layer.scope) != nullptr) refuse("adapts experts");
    }
  }

  void add(const model::LinearLayer& layer) {
    const model::AdapterLayer& of_layer = *peft_.adapter->find(layer.scope);
    // llama.cpp multiplies by alpha / rank, with one alpha for all layers.
    const auto alpha =
        static_cast<float>(peft_.adapter->scale(of_layer) * static_cast<double>(of_layer.rank));
    if (sources_.empty()) alpha_ = alpha;
    if (alpha != alpha_)
      refuse(fmt::format("needs an alpha of {} for {}, but {} for others", alpha, layer.scope, alpha_));
    const auto name = gguf::gguf_name(architecture_, layer.scope + ".weight");
    if (!name) refuse(fmt::format("adapts {}, for which {} has no tensor", layer.scope, architecture_.name));
    const bool ordered =
        name->transform == gguf::Transform::query_heads || name->transform == gguf::Transform::key_heads;
    const gguf::Transform rows = ordered ? name->transform : gguf::Transform::none;
    store(layer.scope + std::string(model::kLoraA), name->name + ".lora_a", gguf::Transform::none);
    store(layer.scope + std::string(model::kLoraB), name->name + ".lora_b", rows);
  }

  void store(const std::string& scope, const std::string& name, gguf::Transform transform) {
    const io::TensorInfo* tensor = files_.find(scope + ".weight");
    if (tensor == nullptr) throw FileError("{}: has no {}", request_.in.path.string(), name_in_quotes(scope));
    const TensorType type = type_of(io::dtype_of(request_.change.format.value_or(Scalar::f32)), name);
    sources_.push_back(
        {tensor, transform, gguf::heads_of(base_.config, transform), hash_name(name), stored_.size()});
    stored_.push_back({name, type, tensor->shape});
    RewrittenTensor row{name, tensor->shape, tensor->dtype, io::Dtype::f32, false};
    row.to_name = traits(type).name;
    result_.tensors.push_back(std::move(row));
    result_.bytes_in += tensor->end - tensor->begin;
    result_.bytes_out += stored_.back().bytes();
  }

  std::string write_header() {
    gguf::HeaderWriter header;
    header.add("general.architecture", architecture_.name);
    header.add("general.type", "adapter");
    header.add("general.name", request_.out.stem().string());
    header.add("adapter.type", "lora");
    header.add("adapter.lora.alpha", alpha_);
    for (const auto& [key, value] : files_.metadata()) {
      if (key.starts_with("mantissa.")) header.add(key, value);
    }
    return header.finish(stored_);
  }

  const Request& request_;
  const kernels::Context& ctx_;
  InputModel base_;
  const gguf::Architecture& architecture_;
  peft::PeftAdapter peft_;
  io::WeightFiles files_;
  float alpha_ = 0;
  std::vector<GgufSource> sources_;  // A and B of each layer, as the tensors of the file
  std::vector<gguf::TensorToStore> stored_;
  Result result_;
};

}  // namespace

bool becomes_gguf_adapter(const Request& request) {
  return request.in.kind == io::ModelPath::Kind::adapter && request.layout == Layout::gguf &&
         !peft::holds_states(request.in.path);
}

std::optional<Result> write_gguf_adapter(const Request& request, const kernels::Context& ctx,
                                         const std::stop_token& stop) {
  if (request.quantized)
    throw ConfigError("--dtype {}: an adapter is written in f32, bf16 or f16. Fix: choose one of them",
                      gguf::lower_name(traits(*request.quantized)));
  return AdapterWriter(request, ctx).run(stop);
}

}  // namespace mantissa::convert
