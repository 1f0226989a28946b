#include "mantissa/setup/weights/stored_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/state_weights.h"

namespace mantissa::weights {
namespace {

using plan::Slot;

std::string weight_of(std::string_view scope) {
  return std::string(scope) + ".weight";
}

/// Maps the names of the model's slots to tensors of a file.
class StoredNames {
 public:
  StoredNames(const io::WeightFiles& files, const model::Family& family) : files_(files), family_(family) {}

  /// Returns the name of a slot in the files.
  std::string of(const std::string& slot) const {
    const io::TensorInfo* tensor = stored_tensor(slot, files_, family_);
    return tensor == nullptr ? slot : tensor->name;
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
      fmt::format("but policy \"{}\" keeps {} here", program.policy.short_line(), name(slot.master));
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

/// True if two tensors of the files have the same stored bytes.
bool are_same(const io::WeightFiles& files, const io::TensorInfo& a, const io::TensorInfo& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  constexpr std::uint64_t kPart = std::uint64_t{1} << 20;
  const std::uint64_t bytes = a.end - a.begin;
  std::vector<std::byte> of_a(std::min(kPart, bytes)), of_b(of_a.size());
  for (std::uint64_t at = 0; at < bytes; at += kPart) {
    const std::uint64_t part = std::min(kPart, bytes - at);
    files.read(a.name, std::span(of_a).first(part), at);
    files.read(b.name, std::span(of_b).first(part), at);
    if (!std::equal(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(part), of_b.begin()))
      return false;
  }
  return true;
}

/// Throws for a stored head that config.json ties to an embedding with other values: either may be what is
/// meant.
void check_tied_head(const plan::Program& program, const StoredNames& names, const io::WeightFiles& files,
                     const model::ModelConfig& config, const std::filesystem::path& where) {
  const io::TensorInfo* head = files.find(config.family->head_weight);
  if (!config.tie_word_embeddings || config.scores || head == nullptr) return;
  const io::TensorInfo* embedding = nullptr;
  for (const Slot& slot : program.slots) {
    const io::TensorInfo* tensor = files.find(names.of(slot.name));
    if (tensor == nullptr || slot.shape.sizes() != head->shape) continue;
    if (are_same(files, *tensor, *head)) return;
    embedding = tensor;
  }
  throw FileError(fmt::format(
      "{}: tie_word_embeddings in config.json makes the head that of the embedding, but tensor "
      "\"{}\" {}; set tie_word_embeddings to false to use this head, or remove it from the file",
      where.string(), head->name,
      embedding == nullptr ? "has another shape" : fmt::format("differs from \"{}\"", embedding->name)));
}

}  // namespace

io::WeightFiles files_of(const ModelSource& source) {
  if (source.memory != nullptr) return io::with_joined_experts(io::WeightFiles(source.memory));
  if (source.tensors != nullptr) return io::with_joined_experts(io::WeightFiles(source.tensors));
  return io::with_joined_experts(source.state ? io::open_state_weights(source.weights)
                                              : io::WeightFiles(source.weights));
}

const io::TensorInfo* stored_tensor(const std::string& name, const io::WeightFiles& files,
                                    const model::Family& family) {
  const io::TensorInfo* tensor = files.find(name);
  const std::string_view prefix = family.trunk_prefix;
  if (tensor != nullptr || !name.starts_with(prefix)) return tensor;
  return files.find(name.substr(prefix.size()));
}

bool is_new_head(const Slot& slot) {
  return slot.name == weight_of(model::kScoreHead) || slot.name == weight_of(model::kValueHead);
}

bool is_adapters(const model::ModelConfig& config, const Slot& slot) {
  return config.adapter != nullptr && config.adapter->owns(slot.name);
}

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
                      where.string(), name_in_quotes(t.name), config.model_type));
    }
  }
  check_tied_head(program, names, files, config, where);
}

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

}  // namespace mantissa::weights
