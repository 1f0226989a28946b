#include "mantissa/app/api/model.h"

#include <optional>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/numeric/frozen_formats.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/setup/weights/base_hash.h"

namespace mantissa::api {

std::shared_ptr<const io::MemoryTensors> memory_of(const std::shared_ptr<const Weights>& weights) {
  auto memory = std::make_shared<io::MemoryTensors>();
  for (const Tensor& t : weights->tensors) {
    const std::optional<io::Dtype> dtype = io::parse_dtype(t.dtype);
    if (!dtype) {
      throw ConfigError("{}: tensor {} has dtype {}; give a dtype of safetensors, such as \"F32\"",
                        io::kInMemory, in_quotes(t.name), in_quotes(t.dtype));
    }
    memory->tensors.push_back({t.name, *dtype, t.shape, t.bytes});
  }
  memory->metadata = weights->metadata;
  memory->keep = weights;
  return memory;
}

std::optional<QuantFormat> base_named(const std::string& name) {
  if (name == "params") return std::nullopt;
  if (const std::optional<QuantFormat> format = parse_frozen_format(name)) return format;
  throw ConfigError(
      "--base {}: must be one of int8, nf4, nf4-double, params (the policy's formats) and, "
      "except in merge, f32, bf16 and f16",
      in_quotes(name));
}

weights::ModelSource source_of(const Model& model) {
  weights::ModelSource source = model.weights == nullptr
                                    ? weights::find_model(model.directory)
                                    : weights::model_in_memory(model.config_json, memory_of(model.weights));
  if (!model.adapter.empty()) {
    if (source.config.adapter != nullptr) {
      throw ConfigError("{}: has an adapter already; give its base as MODEL, or remove --adapter",
                        model.directory.string());
    }
    weights::use_adapter(source, model.adapter);
  }
  if (!model.base.empty()) {
    source.config.base_plain = parse_plain_base(model.base);
    source.config.base = source.config.base_plain ? std::nullopt : base_named(model.base);
  }
  return source;
}

std::vector<std::string> warnings_of(const Model& model) {
  if (model.weights != nullptr) return {};
  const weights::ModelSource source = source_of(model);
  if (source.config.adapter == nullptr) return {};
  std::vector<std::string> warnings;
  if (std::optional<std::string> changed =
          weights::changed_base(source, model.adapter.empty() ? model.directory : model.adapter))
    warnings.push_back(std::move(*changed));
  return warnings;
}

}  // namespace mantissa::api
