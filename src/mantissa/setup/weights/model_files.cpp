#include "mantissa/setup/weights/model_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/gguf/foreign_model.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/gguf/origin.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/weights/adapted.h"
#include "mantissa/setup/weights/model_of_file.h"
#include "mantissa/setup/weights/model_scales.h"
#include "mantissa/setup/weights/quantize_frozen.h"
#include "mantissa/text/tokenizer/kinds.h"

namespace mantissa::weights {
namespace {

using plan::Slot;

nlohmann::json read_config_json(const std::filesystem::path& path) {
  constexpr std::uint64_t kMost = 16U << 20U;
  return io::parse_json(disk::read_text_file(path, kMost), path);
}

ModelSource model_in(const std::filesystem::path& directory) {
  const std::filesystem::path config = directory / "config.json";
  return {model::parse_model_config(read_config_json(config), config.string()), directory, directory};
}

ModelSource model_in_gguf(const std::filesystem::path& path) {
  const auto file = std::make_shared<const gguf::GgufFile>(path);
  std::map<std::string, std::string> metadata = gguf::origin_of(*file);
  metadata["format"] = "pt";
  gguf::ForeignModel model = gguf::open_model(file, std::move(metadata));
  ModelSource source{std::move(model.config), path};
  source.tensors = std::move(model.weights);
  source.files =
      std::make_shared<const std::map<std::string, std::string>>(model.files.begin(), model.files.end());
  return source;
}

ModelSource state_in(const std::filesystem::path& folder) {
  try {
    const io::StateReader state(folder);
    if (std::optional<ModelSource> adapted = adapter_of_state(state, folder)) return std::move(*adapted);
    const nlohmann::json config = io::parse_json(state.header().model_config, folder / "state.json");
    const std::filesystem::path files = tokenizer::files_directory(folder);
    return {model::parse_model_config(config, (folder / "state.json").string()), folder / io::kStateTensors,
            files == folder ? std::filesystem::path() : files, true};
  } catch (const FileError& e) {
    throw FileError(e.message());  // without its cures, which are for a resumed run
  }
}

}  // namespace

std::vector<io::TensorToWrite> tensors_of(const runtime::WeightSet& weights,
                                          const precision::Policy& policy) {
  const runtime::Device& device = weights.device();
  const Scalar format = *policy.fields().checkpoint;
  std::vector<io::TensorToWrite> tensors;
  const std::vector<Slot>& slots = weights.program().slots;
  const std::string value_head = std::string(model::kValueHead) + ".weight";  // part of states alone
  // Of an adapter's run, what it trains; all weights of a program that does not train.
  const bool trains = !std::ranges::all_of(slots, &Slot::fixed);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    if (trains && (slot.fixed || slot.name == value_head)) continue;
    io::TensorToWrite t;
    t.name = slot.name;
    t.dtype = io::dtype_of(format);
    t.shape = slot.shape.sizes();
    if (is_quantized(weights, i)) {
      t.fill = [&weights, i, format](std::uint64_t offset, std::span<std::byte> out) {
        read_quantized(weights, i, static_cast<std::int64_t>(offset / mantissa::bytes_of(format)), format,
                       out);
      };
      tensors.push_back(std::move(t));
      continue;
    }
    const auto count = static_cast<std::size_t>(slot.shape.count());
    const bool here = weights.has(slot.master_buffer);
    std::byte* const there =
        here ? device.host_pointer(static_cast<std::byte*>(weights.master(i).data)) : nullptr;
    if (slot.master == format && there != nullptr) {
      t.bytes = {there, count * mantissa::bytes_of(format)};
    } else {
      t.fill = [&weights, i, type = slot.master, format, &device](std::uint64_t offset,
                                                                  std::span<std::byte> out) {
        const std::size_t first = static_cast<std::size_t>(offset) / mantissa::bytes_of(format);
        const std::size_t n = out.size() / mantissa::bytes_of(format);
        std::vector<std::byte> staging;
        const std::span<const std::byte> from =
            weights.view_master(i, first * mantissa::bytes_of(type), n * mantissa::bytes_of(type), staging);
        kernels::cast(device.host(), static_cast<std::int64_t>(n), from.data(), type, out.data(), format);
      };
    }
    tensors.push_back(std::move(t));
  }
  return io::with_split_experts(std::move(tensors));
}

namespace {

std::string config_text(const model::ModelConfig& config, const precision::Policy& policy) {
  const io::Dtype dtype = io::dtype_of(*policy.fields().checkpoint);
  return model::to_json(config, std::string(io::torch_name(dtype))).dump(2) + "\n";
}

}  // namespace

std::map<std::string, std::string> metadata_of(const runtime::WeightSet& weights,
                                               const precision::Policy& policy) {
  const Scalar format = *policy.fields().checkpoint, master_format = policy.resolve({}).params;
  const Scalar rounded_to = holds(format, master_format) ? master_format : format;
  std::map<std::string, std::string> metadata = {{"mantissa.policy", policy.line()},
                                                 {"mantissa.rounded_to", std::string(name(rounded_to))}};
  if (std::string amax = amax_text(weights.scales()); !amax.empty())
    metadata.emplace(io::kAmaxKey, std::move(amax));
  return metadata;
}

std::optional<std::string> beside_weights(const ModelSource& source, const std::string& name) {
  constexpr std::uint64_t kMost = 64U << 20U;
  if (source.files != nullptr) {
    const auto found = source.files->find(name);
    return found == source.files->end() ? std::nullopt : std::optional(found->second);
  }
  if (source.directory.empty() || !disk::exists(source.directory / name)) return std::nullopt;
  return disk::read_text_file(source.directory / name, kMost);
}

namespace {

ModelSource source_of(const io::ModelPath& found, const std::filesystem::path& path) {
  switch (found.kind) {
    case io::ModelPath::Kind::gguf:
      return model_in_gguf(found.path);
    case io::ModelPath::Kind::file:
      return model_of_file(found.path);
    case io::ModelPath::Kind::state:
      return state_in(found.path);
    case io::ModelPath::Kind::adapter:
      return model_of_adapter(found.path);
    case io::ModelPath::Kind::model:
      break;
  }
  if (!disk::exists(found.path / "config.json")) {
    throw FileError(
        "{}: has no config.json, so it is not a model, and no model/ or state/, so it is not a run "
        "with a state. Fix: give a model, or a run that has saved a state",
        path.string());
  }
  return model_in(found.path);
}

}  // namespace

ModelSource find_model(const std::filesystem::path& path) {
  return source_of(io::open_model(path), path);
}

ModelSource find_model(const config::ModelSection& section) {
  if (!section.path.empty()) {
    if (!disk::has_name(section.path)) {
      throw FileError(
          "model.path: expected a model directory or a GGUF file, got {}, which does not exist. "
          "Fix: put the model there, or give its place with --set model.path=PATH",
          section.path);
    }
    return find_model(std::filesystem::path(section.path));
  }
  if (section.config.empty()) {
    nlohmann::json fields = section.fields;
    // The name of a table of bases, which config::overridden() resolves.
    if (const auto theta = fields.find("rope_theta"); theta != fields.end() && theta->is_string())
      fields.erase(theta);
    return {model::parse_model_config(fields, "[model]"), {}};
  }
  const std::filesystem::path file = section.config;
  return {model::parse_model_config(read_config_json(file), section.config), {}, file.parent_path()};
}

void use_memory(ModelSource& source, std::shared_ptr<const io::MemoryTensors> tensors) {
  source.weights = io::kInMemory;
  source.memory = std::move(tensors);
  source.tensors.reset();
  source.state = false;
}

ModelSource model_in_memory(const std::string& config_json,
                            std::shared_ptr<const io::MemoryTensors> tensors) {
  const std::string where = "config.json in memory";
  ModelSource source{model::parse_model_config(io::parse_json(config_json, where), where), {}};
  use_memory(source, std::move(tensors));
  return source;
}

std::uint64_t save_model(const std::filesystem::path& directory, const runtime::WeightSet& weights,
                         const model::ModelConfig& config, const precision::Policy& policy,
                         std::vector<std::pair<std::string, std::string>> files) {
  const std::vector<io::TensorToWrite> tensors = tensors_of(weights, policy);
  io::ModelToWrite model;
  model.config_json = config_text(config, policy);
  model.files = std::move(files);
  model.tensors = tensors;
  model.metadata = metadata_of(weights, policy);
  return io::write_model(directory, model);
}

SavedModel save_to_memory(const runtime::WeightSet& weights, const model::ModelConfig& config,
                          const precision::Policy& policy) {
  SavedModel model{config_text(config, policy), {}, metadata_of(weights, policy)};
  const std::vector<io::TensorToWrite> tensors = tensors_of(weights, policy);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const io::TensorToWrite& from = tensors[i];
    SavedTensor& to = model.tensors.emplace_back(SavedTensor{from.name, from.dtype, from.shape, {}});
    std::size_t count = 1;
    for (const std::int64_t size : from.shape) count *= static_cast<std::size_t>(size);
    to.bytes.resize(count * io::bytes_of(from.dtype));
    if (from.bytes.empty()) {
      from.fill(0, to.bytes);
    } else {
      std::ranges::copy(from.bytes, to.bytes.begin());
    }
  }
  return model;
}

std::string checkpoint_loss(const runtime::WeightSet& weights, Scalar format) {
  const runtime::Device& device = weights.device();
  constexpr std::size_t kPart = 4096, kPiece = 1024 * kPart;
  ErrorStats all;
  for (std::size_t i = 0; i < weights.program().slots.size(); ++i) {
    const Slot& slot = weights.program().slots[i];
    if (slot.fixed || holds(format, slot.master) || is_quantized(weights, i)) continue;
    const auto count = static_cast<std::size_t>(slot.shape.count()), width = mantissa::bytes_of(slot.master);
    std::vector<std::byte> staging;
    for (std::size_t first = 0; first < count; first += kPiece) {
      const std::size_t size = std::min(kPiece, count - first);
      const std::span<const std::byte> values = weights.view_master(i, first * width, size * width, staging);
      std::vector<ErrorStats> parts((size + kPart - 1) / kPart);
      device.parallel_for(std::ssize(parts), [&](std::int64_t part, int) {
        std::array<double, kPart> before, after;
        const std::size_t begin = static_cast<std::size_t>(part) * kPart, n = std::min(kPart, size - begin);
        load_row(values.data(), slot.master, begin, n, before.data());
        after = before;
        round_row(after.data(), n, format);
        parts[static_cast<std::size_t>(part)].add_row(before.data(), after.data(), n, format);
      });
      for (const ErrorStats& part : parts) all.merge(part);
    }
  }
  if (all.count == 0) return {};
  return fmt::format(
      "the model is written in {}: largest error {:.3g}, RMS {:.3g}; {} of {} values overflow, {} vanish; "
      "the states keep the masters",
      name(format), all.max_abs, all.rms(), all.overflows, all.count, all.vanished);
}

}  // namespace mantissa::weights
