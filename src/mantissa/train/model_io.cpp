#include "mantissa/train/model_io.h"

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/io/checkpoint.h"
#include "mantissa/io/file.h"
#include "mantissa/io/json.h"
#include "mantissa/kernels/update.h"

namespace mantissa::train {
namespace {

using plan::Slot;

nlohmann::json read_config_json(const std::filesystem::path& path) {
  constexpr std::uint64_t kMost = 16U << 20U;
  return io::parse_json(io::read_text_file(path, kMost), path);
}

std::vector<std::int64_t> sizes(const Shape& shape) {
  std::vector<std::int64_t> out;
  for (const Dim& d : shape.dims()) out.push_back(d.size);
  return out;
}

}  // namespace

ModelSource find_model(const std::filesystem::path& directory) {
  std::error_code error;  // of a place that cannot be looked at; it is no directory either
  if (!std::filesystem::is_directory(directory, error)) {
    throw FileError(fmt::format(
        "{}: is no directory; give a Hugging Face model directory with config.json and model.safetensors",
        directory.string()));
  }
  const std::filesystem::path config = directory / "config.json";
  return {model::parse_model_config(read_config_json(config), config.string()), directory};
}

ModelSource find_model(const ModelSection& section) {
  if (!section.path.empty()) return find_model(std::filesystem::path(section.path));
  if (!section.config.empty())
    return {model::parse_model_config(read_config_json(section.config), section.config), {}};
  return {model::parse_model_config(section.fields, "[model]"), {}};
}

std::uint64_t save_model(const std::filesystem::path& directory, const runtime::WeightSet& weights,
                         const model::ModelConfig& config, const kernels::Context& ctx) {
  std::vector<io::TensorToWrite> tensors;
  for (std::size_t i = 0; i < weights.program().slots.size(); ++i) {
    const Slot& slot = weights.program().slots[i];
    const Matrix master = weights.master(i);
    io::TensorToWrite t;
    t.name = slot.name;
    t.dtype = io::Dtype::f32;
    t.shape = sizes(slot.shape);
    const auto count = static_cast<std::size_t>(slot.shape.count());
    if (slot.master == Scalar::f32) {
      t.bytes = {static_cast<const std::byte*>(master.data), count * sizeof(float)};
    } else {
      t.fill = [master, &ctx](std::uint64_t offset, std::span<std::byte> out) {
        const std::size_t first = static_cast<std::size_t>(offset) / sizeof(float);
        const auto* from =
            static_cast<const std::byte*>(master.data) + first * mantissa::bytes_of(master.type);
        kernels::cast(ctx, static_cast<std::int64_t>(out.size() / sizeof(float)), from, master.type,
                      out.data(), Scalar::f32);
      };
    }
    tensors.push_back(std::move(t));
  }
  io::ModelToWrite model;
  const std::string config_json = model::to_json(config, "float32").dump(2) + "\n";
  model.config_json = config_json;
  model.tensors = tensors;
  model.metadata = {{"mantissa.policy", weights.program().policy.line()},
                    {"mantissa.rounded_to", std::string(name(weights.program().policy.resolve({}).params))}};
  return io::write_model(directory, model);
}

}  // namespace mantissa::train
