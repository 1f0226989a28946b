// Reads the weights of a model into a weight set. A file that already has the needed format is used in place.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/state.h"
#include "mantissa/setup/weights/adapted.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/setup/weights/model_scales.h"
#include "mantissa/setup/weights/quantize_frozen.h"
#include "mantissa/setup/weights/quantized.h"
#include "mantissa/setup/weights/stored_names.h"
#include "mantissa/setup/weights/tensor_load.h"

namespace mantissa::weights {
namespace {

using plan::Slot;

/// Reads the tensor of a slot that is held in blocks, and quantizes it.
void load_quantized(runtime::WeightSet& weights, std::size_t i, const io::WeightFiles& files,
                    const io::TensorInfo& tensor, QuantizationErrors& errors) {
  Slot wide = weights.program().slots[i];
  wide.master = Scalar::f32;
  std::vector<float> values(static_cast<std::size_t>(wide.shape.count()));
  TensorLoad load(files, tensor, wide);
  load.master = {values.data(), Scalar::f32, wide.shape.last()};
  load.run(weights.device());
  quantize_frozen(weights, i, values, errors);
}

/// Initializes the histories of the scales from those in `files`.
void read_scales(runtime::WeightSet& weights, const io::WeightFiles& files, const ModelSource& source) {
  std::map<std::string, std::string> metadata = files.metadata();
  if (source.state) {
    const std::string amax = io::amax_of_state(io::SafetensorsReader(source.weights));
    if (!amax.empty()) metadata[io::kAmaxKey] = amax;
  }
  read_amax(weights.scales(), metadata, source.weights);
}

/// Returns the quantized type of a GGUF file, or the block format, that the values were last rounded to, or
/// "".
std::string quantized_origin(const io::WeightFiles& files) {
  const auto found = files.metadata().find("mantissa.rounded_to");
  if (found == files.metadata().end() || parse_scalar(found->second)) return {};
  return found->second;
}

}  // namespace

std::vector<std::string> load_weights(runtime::WeightSet& weights, const ModelSource& source,
                                      std::uint64_t seed) {
  const io::WeightFiles files = files_of(source);
  const plan::Program& program = weights.program();
  check_names(program, files, source.config, source.weights);
  std::size_t narrowest = 8;  // bytes per stored value
  QuantizationErrors errors;
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    if (is_new_head(slot) && files.find(slot.name) == nullptr) {
      weights.draw(i, seed);
      continue;
    }
    const io::TensorInfo& tensor = tensor_of(slot, files, program, source);
    if (is_quantized(weights, i)) {
      load_quantized(weights, i, files, tensor, errors);
      continue;
    }
    TensorLoad load(files, tensor, slot);
    if (weights.has(slot.master_buffer)) load.master = weights.master(i);
    for (std::size_t c = 0; c < slot.copies.size(); ++c) {
      if (!program.buffer(slot.copies[c]).is_derived()) load.copies.push_back(weights.copy(i, c));
    }
    load.run(weights.device());
    narrowest = std::min(narrowest, io::bytes_of(tensor.dtype));
  }
  read_scales(weights, files, source);
  weights.refresh_derived();
  std::vector<std::string> notes = files.notes();
  std::ranges::move(errors.notes(), std::back_inserter(notes));
  if (const std::string origin = quantized_origin(files); !origin.empty()) {
    notes.push_back(
        fmt::format("{}: the weights were quantized to {}; the masters start from dequantized values",
                    source.weights.string(), origin));
  } else if (narrowest < 4) {
    notes.push_back(
        fmt::format("{}: the weights are stored in {} bits; the masters start from rounded values",
                    source.weights.string(), 8 * narrowest));
  }
  return notes;
}

namespace {

/// The tensors of a program's slots: of the model's files, or of an adapter's. A slot without one begins with
/// random values.
class SlotTensors {
 public:
  SlotTensors(const plan::Program& program, const ModelSource& source) : program_(program), source_(source) {
    if (!source.weights.empty()) files_.emplace(files_of(source));
    if (files_) check_names(program, *files_, source.config, source.weights);
    if (source.adapter != nullptr) adapter_.emplace(io::with_joined_experts(io::WeightFiles(source.adapter)));
  }

  /// The files that have a tensor, and the tensor; null: there is none.
  struct Place {
    io::WeightFiles* files = nullptr;
    const io::TensorInfo* tensor = nullptr;
  };
  Place of(const Slot& slot) {
    const bool adapters = is_adapters(source_.config, slot);
    if (adapters && adapter_) {
      if (const io::TensorInfo* tensor = adapter_->find(slot.name); tensor != nullptr)
        return {&*adapter_, tensor};
    }
    if (!files_ || (adapters && !is_new_head(slot))) return {};
    if (is_new_head(slot) && files_->find(slot.name) == nullptr) return {};
    return {&*files_, &tensor_of(slot, *files_, program_, source_)};
  }
  /// Returns the model's files, or null.
  const io::WeightFiles* files() const { return files_ ? &*files_ : nullptr; }
  bool is_base(const Slot& slot) const { return files_ && !is_adapters(source_.config, slot); }

 private:
  const plan::Program& program_;
  const ModelSource& source_;
  std::optional<io::WeightFiles> files_, adapter_;
};

}  // namespace

runtime::WeightSet open_weights(const plan::Program& program, const ModelSource& source,
                                const runtime::Device& device, std::uint64_t seed,
                                std::vector<std::string>* notes) {
  if (source.weights.empty() && source.config.adapter != nullptr) {
    throw ConfigError(
        "adapter: the model has no weights to adapt; give a model with weights as model.path, or train all "
        "of them with adapter.kind = \"none\"");
  }
  SlotTensors tensors(program, source);
  const QuantizedViews quantized(program);
  constexpr std::size_t kLeastMapped = 4096;  // a page
  const std::vector<bool> read = runtime::read_weights(program);
  std::vector<runtime::WeightSet::View> views;
  std::vector<std::optional<TensorLoad>> loads(program.slots.size());
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    const SlotTensors::Place place = tensors.of(slot);
    if (place.tensor == nullptr) continue;                    // drawn below
    if (program.buffer(slot.master_buffer).quants) continue;  // quantized below
    if (!tensors.is_base(slot)) {
      loads[i].emplace(*place.files, *place.tensor, slot);
      continue;
    }
    // A tensor that is not finite is loaded, which reports its element.
    if (auto in_blocks = quantized.of(slot, *place.files, place.tensor->name);
        !in_blocks.empty() && is_finite(in_blocks.front(), slot.shape.count(), device)) {
      std::ranges::move(in_blocks, std::back_inserter(views));
      continue;
    }
    TensorLoad& load = loads[i].emplace(*place.files, *place.tensor, slot);
    const auto view = [&](plan::BufferId id) {
      const Scalar type = program.buffer(id).type;
      if (program.buffer(id).is_derived()) return;
      // If the master's format represents the stored values, a copy in the stored format needs no conversion.
      if (type != load.stored() || !holds(slot.master, type)) return;
      // An access maps pages around what it reads, so vectors below a page take less memory as copies.
      const bool small = slot.shape.rank() == 1 && program.buffer(id).bytes < kLeastMapped;
      if (small && read[static_cast<std::size_t>(id)]) return;
      const io::WeightFiles::Mapped file = place.files->map(place.tensor->name);
      if (reinterpret_cast<std::uintptr_t>(file.bytes.data()) % mantissa::bytes_of(type) != 0) return;
      // What no step reads is read piece by piece instead of through the mapping, which would stay in memory.
      if (read[static_cast<std::size_t>(id)] || !file.release) load.mapped = file.bytes.data();
      views.push_back({id, file.bytes.data(), file.keep, {}, file.release});
    };
    view(slot.master_buffer);
    for (const plan::BufferId copy : slot.copies) view(copy);
  }
  std::vector<bool> own(program.buffers.size(), true);
  for (const auto& v : views) own[static_cast<std::size_t>(v.buffer)] = false;
  runtime::WeightSet weights(program, std::move(views), device);
  QuantizationErrors errors;
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    const SlotTensors::Place place = tensors.of(slot);
    if (place.tensor == nullptr) {
      weights.draw(i, seed);
    } else if (is_quantized(weights, i)) {
      load_quantized(weights, i, *place.files, *place.tensor, errors);
    }
    if (!loads[i]) continue;
    const auto fills = [&](plan::BufferId id) {
      return own[static_cast<std::size_t>(id)] && weights.has(id);
    };
    if (fills(slot.master_buffer)) loads[i]->master = weights.master(i);
    for (std::size_t c = 0; c < slot.copies.size(); ++c) {
      if (fills(slot.copies[c]) && !program.buffer(slot.copies[c]).is_derived())
        loads[i]->copies.push_back(weights.copy(i, c));
    }
    loads[i]->run(device);
  }
  const bool begins = source.config.adapter != nullptr && source.adapter == nullptr;
  if (begins && source.config.adapter->dora) start_magnitudes(weights);
  if (tensors.files() != nullptr) read_scales(weights, *tensors.files(), source);
  weights.refresh_derived();
  if (notes != nullptr) std::ranges::move(errors.notes(), std::back_inserter(*notes));
  return weights;
}

runtime::Session open_session(std::shared_ptr<const plan::Program> program, const ModelSource& source,
                              const runtime::Device& device) {
  auto weights = std::make_shared<runtime::WeightSet>(open_weights(*program, source, device));
  return {std::move(program), std::move(weights)};
}

}  // namespace mantissa::weights
