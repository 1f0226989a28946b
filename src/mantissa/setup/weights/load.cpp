// Reads weights from files into masters and copies. One pass over every tensor reads, checks, rounds and
// stores it, piece by piece on all threads. A file that already has the needed format is used in place.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <iterator>
#include <optional>
#include <set>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/file.h"
#include "mantissa/files/io/state.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/weights/adapted.h"
#include "mantissa/setup/weights/any_nonfinite.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/setup/weights/model_scales.h"
#include "mantissa/setup/weights/quantize_frozen.h"
#include "mantissa/setup/weights/quantized.h"

namespace mantissa::weights {
namespace {

using plan::Slot;

std::string weight_of(std::string_view scope) {
  return std::string(scope) + ".weight";
}

/// Returns true for the weight of a head that files may lack. It then begins with random values.
bool is_new_head(const Slot& slot) {
  return slot.name == weight_of(model::kScoreHead) || slot.name == weight_of(model::kValueHead);
}

/// Maps the names of the model's slots to tensors of a file. Files of the bare trunk omit its prefix.
class StoredNames {
 public:
  StoredNames(const io::WeightFiles& files, const model::Family& family) : files_(files), family_(family) {}

  /// Returns the name of a slot in the files.
  std::string of(const std::string& slot) const {
    const std::string_view prefix = family_.trunk_prefix;
    if (files_.find(slot) == nullptr && slot.starts_with(prefix)) {
      std::string bare = slot.substr(prefix.size());
      if (files_.find(bare) != nullptr) return bare;
    }
    return slot;
  }

  /// Returns true for tensors that the model computes from its config, for a stored head that is tied to the
  /// embedding or that a reward model replaces, and for the value head of a critic's state.
  bool may_be_ignored(std::string_view name, const model::ModelConfig& config) const {
    if ((config.tie_word_embeddings || config.scores) && name == family_.head_weight) return true;
    if (name == weight_of(model::kValueHead)) return true;
    return std::ranges::any_of(family_.derived, [&](std::string_view end) { return name.ends_with(end); });
  }

 private:
  const io::WeightFiles& files_;
  const model::Family& family_;
};

/// Throws for weights that need more than their tensor: integers, booleans, and 8-bit codes with separate
/// scales.
void check_dtype(const Slot& slot, const io::TensorInfo& tensor, const io::WeightFiles& files,
                 const plan::Program& program) {
  const bool floating = io::scalar_of(tensor.dtype).has_value();
  const io::TensorInfo* scale = files.scale_of(tensor.name);
  if (floating && (scale == nullptr || io::bytes_of(tensor.dtype) > 1)) return;
  const std::string what = fmt::format("{}: is {} in {}", slot.name, io::safetensors_name(tensor.dtype),
                                       files.path_of(tensor.name).string());
  const std::string where =
      fmt::format("but policy \"{}\" keeps {} here", program.policy.preset(), name(slot.master));
  if (floating) {
    throw DtypeError(
        fmt::format("{} with its scale in \"{}\", {}; dequantize them with mantissa convert IN OUT --dtype "
                    "bf16, or load the weights before quantization",
                    what, scale->name, where));
  }
  throw DtypeError(
      fmt::format("{}, {}; save it as a floating-point tensor (in PyTorch weight.to(torch.float32)), or load "
                  "the weights before quantization",
                  what, where));
}

/// Returns true for a parameter of the model's adapter, which has a source of its own.
bool is_adapters(const model::ModelConfig& config, const Slot& slot) {
  return config.adapter != nullptr && config.adapter->owns(slot.name);
}

/// Throws if the files contain other tensors than the model's weights, or weights that are not
/// floating-point.
void check_names(const plan::Program& program, const io::WeightFiles& files, const model::ModelConfig& config,
                 const std::filesystem::path& where) {
  const StoredNames names(files, *config.family);
  std::set<std::string> used;
  for (const Slot& slot : program.slots) {
    if (is_adapters(config, slot)) continue;
    const std::string name = names.of(slot.name);
    used.insert(name);
    if (const io::TensorInfo* tensor = files.find(name); tensor != nullptr)
      check_dtype(slot, *tensor, files, program);
  }
  for (const io::TensorInfo& t : files.tensors()) {
    if (!used.contains(t.name) && !names.may_be_ignored(t.name, config)) {
      throw FileError(
          fmt::format("{}: tensor {} is not a weight of this {} model; check the number of layers and "
                      "tie_word_embeddings in config.json",
                      where.string(), io::in_quotes(t.name), config.model_type));
    }
  }
}

/// Returns the stored tensor of a slot. Throws if it is missing or has the wrong shape.
const io::TensorInfo& tensor_of(const Slot& slot, const io::WeightFiles& files, const plan::Program& program,
                                const ModelSource& source) {
  const std::filesystem::path& where = source.weights;
  const io::TensorInfo* info = files.find(StoredNames(files, *source.config.family).of(slot.name));
  if (info == nullptr) {
    throw FileError(fmt::format("{}: tensor \"{}\" is missing; the model has {} weights and needs this one{}",
                                where.string(), slot.name, program.slots.size(),
                                source.state ? ". States do not contain frozen weights that the run held in "
                                               "quantized blocks: use the model that the run wrote"
                                             : ""));
  }
  if (info->shape != slot.shape.sizes()) {
    throw ShapeError(fmt::format("{}: tensor \"{}\" is [{}], but config.json requires {}", where.string(),
                                 slot.name, fmt::join(info->shape, ", "), slot.shape.str()));
  }
  return *info;
}

/// Loads one tensor from its file into allocated memory.
class TensorLoad {
 public:
  TensorLoad(const io::WeightFiles& files, const io::TensorInfo& tensor, const Slot& slot)
      : files_(files),
        slot_(slot),
        name_(tensor.name),
        file_(files.path_of(tensor.name)),
        stored_(*io::scalar_of(tensor.dtype)),
        wide_(slot.master == Scalar::f64 ? Scalar::f64 : Scalar::f32) {}

  /// Destinations; those with null data are not filled.
  Matrix master;
  std::vector<Matrix> copies;
  /// The stored values, if they are mapped.
  const std::byte* mapped = nullptr;

  Scalar stored() const { return stored_; }

  /// Throws FileError if a value is not finite or beyond the master's range.
  void run(const runtime::Device& device) {
    const std::int64_t count = slot_.shape.count(), pieces = (count + kPiece - 1) / kPiece;
    std::vector<Buffers> buffers(static_cast<std::size_t>(device.host().threads));
    std::vector<std::exception_ptr> faults(static_cast<std::size_t>(pieces));
    device.parallel_for(pieces, [&](std::int64_t piece, int thread) {
      try {
        const std::int64_t first = piece * kPiece;
        run_piece(device, first, std::min(kPiece, count - first), buffers[static_cast<std::size_t>(thread)]);
      } catch (...) {
        faults[static_cast<std::size_t>(piece)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& fault : faults) {
      if (fault != nullptr) std::rethrow_exception(fault);
    }
  }

 private:
  // Small enough that the buffers of the threads do not show in the memory of a run.
  static constexpr std::int64_t kPiece = std::int64_t{1} << 15;

  /// The buffers in which a thread converts pieces.
  struct Buffers {
    std::vector<std::byte> stored, wide, master, copy;
  };

  /// A piece of a tensor in the device's memory, which the host fills in place or in a buffer.
  class Piece {
   public:
    Piece(const runtime::Device& device, const Matrix& m, std::int64_t first, std::int64_t n,
          std::vector<std::byte>& buffer)
        : device_(device),
          there_(static_cast<std::byte*>(m.data) +
                 static_cast<std::size_t>(first) * mantissa::bytes_of(m.type)),
          here_(device.host_pointer(there_)),
          bytes_(static_cast<std::size_t>(n) * mantissa::bytes_of(m.type)) {
      if (here_ != nullptr) return;
      buffer.resize(bytes_);
      here_ = buffer.data();
    }
    std::byte* data() const { return here_; }
    void finish() const {
      if (here_ != device_.host_pointer(there_)) device_.upload(there_, {here_, bytes_});
    }

   private:
    const runtime::Device& device_;
    std::byte* there_;
    std::byte* here_;
    std::size_t bytes_;
  };

  /// Loads elements [first, first + n).
  void run_piece(const runtime::Device& device, std::int64_t first, std::int64_t n, Buffers& buffers) const {
    const auto room = [&](std::vector<std::byte>& buffer, Scalar format) {
      buffer.resize(static_cast<std::size_t>(n) * mantissa::bytes_of(format));
      return buffer.data();
    };
    std::optional<Piece> to_master;
    if (master.data != nullptr) to_master.emplace(device, master, first, n, buffers.master);
    const std::size_t skip = static_cast<std::size_t>(first) * mantissa::bytes_of(stored_);
    const bool straight = to_master && stored_ == slot_.master;  // read directly into the destination
    const std::byte* values = mapped == nullptr ? nullptr : mapped + skip;
    if (values == nullptr || straight) {
      std::byte* to = straight ? to_master->data() : room(buffers.stored, stored_);
      files_.read(name_, {to, static_cast<std::size_t>(n) * mantissa::bytes_of(stored_)}, skip);
      values = to;
    }
    if (any_nonfinite(values, static_cast<std::size_t>(n), stored_))
      refuse_nonfinite(device, values, first, n);
    if (stored_ != slot_.master && (to_master || !copies.empty())) {
      // Converts through f32 (f64 for f64 masters), which is exact except for stored f64.
      const std::byte* wide = values;
      if (stored_ != wide_) {
        std::byte* to = room(buffers.wide, wide_);
        kernels::cast(device.serial(), n, values, stored_, to, wide_);
        wide = to;
      }
      std::byte* to = to_master ? to_master->data() : room(buffers.master, slot_.master);
      kernels::cast(device.serial(), n, wide, wide_, to, slot_.master);
      if (any_nonfinite(to, static_cast<std::size_t>(n), slot_.master))
        refuse_range(device, wide, to, first, n);
      values = to;
    }
    if (to_master) to_master->finish();
    for (const Matrix& copy : copies) {
      const Piece to(device, copy, first, n, buffers.copy);
      kernels::cast(device.serial(), n, values, slot_.master, to.data(), copy.type);
      to.finish();
    }
  }

  static std::vector<double> numbers(const runtime::Device& device, const std::byte* x, Scalar format,
                                     std::int64_t n) {
    std::vector<double> out(static_cast<std::size_t>(n));
    kernels::cast(device.serial(), n, x, format, out.data(), Scalar::f64);
    return out;
  }
  static std::size_t first_nonfinite(const std::vector<double>& x) {
    return static_cast<std::size_t>(
        std::find_if(x.begin(), x.end(), [](double v) { return !std::isfinite(v); }) - x.begin());
  }

  [[noreturn]] void refuse_nonfinite(const runtime::Device& device, const std::byte* values,
                                     std::int64_t first, std::int64_t n) const {
    const std::vector<double> x = numbers(device, values, stored_, n);
    const std::size_t i = first_nonfinite(x);
    throw FileError(fmt::format(
        "{}: tensor \"{}\" is {} at element {}; the file is damaged or its training diverged: use an earlier "
        "checkpoint",
        file_.string(), slot_.name, x[i], first + static_cast<std::int64_t>(i)));
  }
  /// `wide` contains the values of the file, `rounded` those in the master's format.
  [[noreturn]] void refuse_range(const runtime::Device& device, const std::byte* wide,
                                 const std::byte* rounded, std::int64_t first, std::int64_t n) const {
    const std::size_t i = first_nonfinite(numbers(device, rounded, slot_.master, n));
    throw FileError(fmt::format(
        "{}: tensor \"{}\" is {} at element {}, beyond the largest {} ({}); keep the weights in f32 "
        "(32-true, bf16-mixed, 16-mixed) or bf16",
        file_.string(), slot_.name, numbers(device, wide, wide_, n)[i], first + static_cast<std::int64_t>(i),
        name(slot_.master), traits(slot_.master).max_finite));
  }

  const io::WeightFiles& files_;
  const Slot& slot_;
  const std::string& name_;  // of the tensor in its file
  const std::filesystem::path& file_;
  Scalar stored_, wide_;
};

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

/// Returns the weight files of `source`.
io::WeightFiles files_of(const ModelSource& source) {
  if (source.memory != nullptr) return io::WeightFiles(source.memory);
  if (source.tensors != nullptr) return io::WeightFiles(source.tensors);
  return io::WeightFiles(source.weights, source.state ? std::string(io::kMasterPrefix) : "");
}

/// Initialises the histories of the scales from those in `files`.
void read_scales(runtime::WeightSet& weights, const io::WeightFiles& files, const ModelSource& source) {
  std::map<std::string, std::string> metadata = files.metadata();
  if (source.state) {
    const std::string amax = io::amax_of_state(files.shards().front());
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
    load.master = weights.master(i);
    for (std::size_t c = 0; c < slot.copies.size(); ++c) {
      if (!program.buffer(slot.copies[c]).scaled) load.copies.push_back(weights.copy(i, c));
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
    if (source.adapter != nullptr) adapter_.emplace(source.adapter);
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
      if (program.buffer(id).scaled) return;
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
      if (fills(slot.copies[c]) && !program.buffer(slot.copies[c]).scaled)
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
