#include "mantissa/files/peft/states.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/pth/torch_file.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/transpose.h"
#include "mantissa/files/peft/config.h"

namespace mantissa::peft {
namespace {

namespace fs = std::filesystem;
using model::RecurrentLayer;

/// A few tensors in memory.
class States final : public io::TensorSource {
 public:
  explicit States(fs::path path, std::map<std::string, std::string> metadata = {})
      : path_(std::move(path)), metadata_(std::move(metadata)) {}

  void add(io::TensorInfo tensor, std::vector<std::byte> bytes) {
    tensor.begin = bytes_.size();
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    tensor.end = bytes_.size();
    tensors_.push_back(std::move(tensor));
  }

  const std::vector<io::TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const fs::path& path() const override { return path_; }
  void read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override {
    std::ranges::copy(std::span(bytes_).subspan(static_cast<std::size_t>(tensor.begin + offset), out.size()),
                      out.begin());
  }

 private:
  fs::path path_;
  std::map<std::string, std::string> metadata_;
  std::vector<io::TensorInfo> tensors_;
  std::vector<std::byte> bytes_;
};

std::string time_state(std::size_t layer) {
  return fmt::format("blocks.{}.att.time_state", layer);
}

/// Returns a state of each head transposed.
std::vector<std::byte> transposed(const io::TensorSource& source, const io::TensorInfo& tensor) {
  std::vector<std::byte> all(tensor.end - tensor.begin);
  source.read(tensor, all, 0);
  const auto heads = static_cast<std::size_t>(tensor.shape[0]),
             rows = static_cast<std::size_t>(tensor.shape[1]),
             columns = static_cast<std::size_t>(tensor.shape[2]);
  const std::size_t size = all.size() / heads;
  std::vector<std::byte> out;
  for (std::size_t h = 0; h < heads; ++h) {
    const auto head =
        io::transpose(std::span(all).subspan(h * size, size), rows, columns, io::bytes_of(tensor.dtype));
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

std::vector<std::int64_t> transposed_shape(const std::vector<std::int64_t>& shape) {
  return {shape[0], shape[2], shape[1]};
}

std::vector<RecurrentLayer> recurrences_of(const model::ModelConfig& base, const fs::path& file) {
  std::vector<RecurrentLayer> layers = model::recurrent_layers(base);
  if (!layers.empty()) return layers;
  throw FileError(
      "{}: holds the initial states of recurrences, and this {} model has none. Fix: give the RWKV-7 model that "
      "they were trained for",
      file.string(), base.model_type);
}

}  // namespace

void check_state(const io::TensorInfo& tensor, const RecurrentLayer& layer, bool of_rwkv_peft,
                 const fs::path& path) {
  const std::vector<std::int64_t> wanted = of_rwkv_peft ? transposed_shape(layer.state) : layer.state;
  if (tensor.shape != wanted) {
    throw ShapeError(
        "{}: tensor {}: expected [{}], the heads and channels of {} in this model, got [{}]. Fix: use the model "
        "that the states were trained for",
        path.string(), name_in_quotes(tensor.name), fmt::join(wanted, ", "), layer.scope,
        fmt::join(tensor.shape, ", "));
  }
  const std::optional<Scalar> type = io::scalar_of(tensor.dtype);
  if (type && !(of_rwkv_peft && type == Scalar::f64)) return;
  throw DtypeError("{}: tensor {}: expected {}, got {}. Fix: save the states in f32 or bf16", path.string(),
                   name_in_quotes(tensor.name), of_rwkv_peft ? "F32, BF16 or F16" : "floating-point numbers",
                   io::safetensors_name(tensor.dtype));
}

PeftAdapter read_time_states(const fs::path& file, const model::ModelConfig& base) {
  constexpr std::string_view kForward = "_forward_module.";
  const io::pth::TorchFile source(file);
  std::map<std::string, const io::TensorInfo*> found;
  for (const io::TensorInfo& tensor : source.tensors()) {
    const std::string_view name = tensor.name;
    found.emplace(name.starts_with(kForward) ? name.substr(kForward.size()) : name, &tensor);
  }
  const std::vector<RecurrentLayer> layers = recurrences_of(base, file);
  auto states = std::make_shared<States>(file);
  for (std::size_t n = 0; n < layers.size(); ++n) {
    const auto tensor = found.find(time_state(n));
    if (tensor == found.end()) {
      throw FileError(
          "{}: expected the tensors blocks.0.att.time_state to {} of RWKV-PEFT's state tuning, got no {}. Fix: give "
          "the file of states of this model, or the directory of an adapter",
          file.string(), time_state(layers.size() - 1), time_state(n));
    }
    const io::TensorInfo& info = *tensor->second;
    check_state(info, layers[n], true, file);
    states->add({layers[n].scope + std::string(model::kInitialState), info.dtype, layers[n].state, 0, 0},
                transposed(source, info));
    found.erase(tensor);
  }
  if (!found.empty()) {
    throw FileError(
        "{}: expected only the {} states of this model, got {} too. Fix: use the model that the states were trained "
        "for",
        file.string(), layers.size(), name_in_quotes(found.begin()->first));
  }
  auto adapter = std::make_shared<model::Adapter>();
  adapter->states = true;
  return {.adapter = std::move(adapter),
          .tensors = std::move(states),
          .base = "",
          .scores = false,
          .base_blocks = std::nullopt,
          .base_plain = std::nullopt,
          .notes = {}};
}

bool holds_states(const fs::path& adapter) {
  const fs::path file = adapter / io::kAdapterConfig;
  const nlohmann::json json = disk::exists(file) ? io::read_json_file(file) : nlohmann::json();
  return json.is_object() && json.value("peft_type", nlohmann::json()) == kStates;
}

std::shared_ptr<const io::TensorSource> to_time_states(const fs::path& adapter) {
  const io::SafetensorsReader source(adapter / kWeightsFile);
  std::map<std::string, std::string> metadata = source.metadata();
  metadata.erase("format");
  auto states = std::make_shared<States>(source.path(), std::move(metadata));
  for (std::size_t n = 0; n < source.tensors().size(); ++n) {
    const std::string name = fmt::format("{}model.layers.{}.attn{}", kPrefix, n, model::kInitialState);
    const io::TensorInfo* tensor = source.find(name);
    if (tensor == nullptr || tensor->shape.size() != 3) {
      throw FileError(
          "{}: expected one initial state for each layer, got none of the name {}. Fix: save the adapter "
          "again",
          source.path().string(), name_in_quotes(name));
    }
    states->add({time_state(n), tensor->dtype, transposed_shape(tensor->shape), 0, 0},
                transposed(source, *tensor));
  }
  return states;
}

}  // namespace mantissa::peft
