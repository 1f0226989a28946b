#include "mantissa/train/model_io.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

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

/// Tensors that old checkpoints hold and that follow from the config.
bool is_derived(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq");
}

std::vector<std::int64_t> sizes(const Shape& shape) {
  std::vector<std::int64_t> out;
  for (const Dim& d : shape.dims()) out.push_back(d.size);
  return out;
}

template <class T>
void check_finite(const Slot& slot, const T* values, const std::filesystem::path& file) {
  const std::int64_t count = slot.shape.count();
  for (std::int64_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) {
      throw FileError(fmt::format(
          "{}: tensor \"{}\" is {} at element {}; the file is damaged or its training diverged: use an "
          "earlier checkpoint",
          file.string(), slot.name, values[i], i));
    }
  }
}

/// `wide` holds what the file says of `slot`, `master` the same rounded to its format.
void check_range(const Slot& slot, const std::vector<float>& wide, Matrix master, const kernels::Context& ctx,
                 const std::filesystem::path& file) {
  std::vector<float> back(wide.size());
  kernels::cast(ctx, slot.shape.count(), master.data, slot.master, back.data(), Scalar::f32);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (std::isfinite(back[i])) continue;
    throw FileError(fmt::format(
        "{}: tensor \"{}\" is {} at element {}, beyond the largest {} ({}); keep the weights in f32 "
        "(32-true, bf16-mixed, 16-mixed) or bf16",
        file.string(), slot.name, wide[i], i, name(slot.master), traits(slot.master).max_finite));
  }
}

void check_names(const runtime::WeightSet& weights, const io::WeightFiles& files,
                 const model::ModelConfig& config, const std::filesystem::path& where) {
  for (const io::TensorInfo& t : files.tensors()) {
    const bool tied_head = config.tie_word_embeddings && t.name == "lm_head.weight";
    bool known = tied_head || is_derived(t.name);
    for (const Slot& slot : weights.program().slots) known = known || slot.name == t.name;
    if (!known) {
      throw FileError(
          fmt::format("{}: tensor {} is no weight of this {} model; check num_hidden_layers and "
                      "tie_word_embeddings in config.json",
                      where.string(), io::in_quotes(t.name), config.model_type));
    }
  }
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

std::vector<std::string> load_weights(runtime::WeightSet& weights, const ModelSource& source,
                                      const kernels::Context& ctx) {
  const io::WeightFiles files(source.weights);
  check_names(weights, files, source.config, source.weights);
  std::vector<std::string> notes;
  bool narrow = false;
  for (std::size_t i = 0; i < weights.program().slots.size(); ++i) {
    const Slot& slot = weights.program().slots[i];
    const io::TensorInfo* info = files.find(slot.name);
    if (info == nullptr) {
      throw FileError(fmt::format("{}: tensor \"{}\" is missing; the model has {} weights and needs this one",
                                  source.weights.string(), slot.name, weights.program().slots.size()));
    }
    if (info->shape != sizes(slot.shape)) {
      throw ShapeError(fmt::format("{}: tensor \"{}\" is [{}], but config.json makes it {}",
                                   source.weights.string(), slot.name, fmt::join(info->shape, ", "),
                                   slot.shape.str()));
    }
    const Matrix master = weights.master(i);
    const auto count = static_cast<std::size_t>(slot.shape.count());
    if (slot.master == Scalar::f64) {
      files.read_f64(slot.name, {static_cast<double*>(master.data), count});
      check_finite(slot, static_cast<const double*>(master.data), files.path_of(slot.name));
    } else if (slot.master == Scalar::f32) {
      files.read_f32(slot.name, {static_cast<float*>(master.data), count});
      check_finite(slot, static_cast<const float*>(master.data), files.path_of(slot.name));
    } else {
      std::vector<float> wide(count);
      files.read_f32(slot.name, wide);
      check_finite(slot, wide.data(), files.path_of(slot.name));
      kernels::cast(ctx, slot.shape.count(), wide.data(), Scalar::f32, master.data, slot.master);
      check_range(slot, wide, master, ctx, files.path_of(slot.name));
    }
    narrow = narrow || io::bytes_of(info->dtype) < 4;
  }
  if (narrow) {
    notes.push_back(
        fmt::format("{}: the weights are stored in 16 bits; the masters start from rounded values",
                    source.weights.string()));
  }
  weights.refresh_copies(ctx);
  return notes;
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
