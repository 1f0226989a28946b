#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/mapping.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/pth/torch_shards.h"
#include "mantissa/files/io/results.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/files/io/widen.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = 1 << 20;  // bytes converted at a time

// An index may only name files in its own folder; a path could point anywhere.
bool is_plain_name(const fs::path& file) {
  return !file.empty() && file != "." && file != ".." && file.filename() == file;
}

// Returns the only one of `found`, or an empty path. Throws FileError if there are several.
fs::path only(const std::vector<fs::path>& found, const fs::path& directory, const char* kind,
              const char* index) {
  if (found.size() < 2) return found.empty() ? fs::path() : found.front();
  throw FileError("{}: has {} {} files and no {}; give the path of one file, or download the index",
                  directory.string(), found.size(), kind, index);
}

constexpr std::array kSafetensors = {"model.safetensors", "model.safetensors.index.json"};
constexpr std::array kTorch = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

}  // namespace

bool has_usual_weights(const fs::path& directory) {
  const auto has = [&](const char* name) { return disk::exists(directory / name); };
  return std::ranges::any_of(kSafetensors, has) || std::ranges::any_of(kTorch, has);
}

fs::path find_weights(const fs::path& directory) {
  const auto first_of = [&](const auto& names) {
    const auto found =
        std::ranges::find_if(names, [&](const char* name) { return disk::exists(directory / name); });
    return found == names.end() ? fs::path() : directory / *found;
  };
  if (fs::path found = first_of(kSafetensors); !found.empty()) return found;
  std::vector<fs::path> safetensors, torch;
  for (const fs::path& file : disk::entries(directory)) {
    const fs::path extension = file.extension();
    if (extension == ".safetensors" && !is_result_file(file)) safetensors.push_back(file);
    if (extension == ".pth" || extension == ".pt") torch.push_back(file);
  }
  if (fs::path found = only(safetensors, directory, "safetensors", kSafetensors[1]); !found.empty())
    return found;
  if (fs::path found = first_of(kTorch); !found.empty()) return found;
  if (fs::path found = only(torch, directory, "PyTorch", kTorch[1]); !found.empty()) return found;
  throw FileError("{}: has no model.safetensors and no pytorch_model.bin; give the directory of a model",
                  directory.string());
}

WeightFiles::WeightFiles(const fs::path& path, std::string prefix) : path_(path), prefix_(std::move(prefix)) {
  open(disk::is_directory(path) ? find_weights(path) : path);
}

WeightFiles::WeightFiles(std::shared_ptr<const MemoryTensors> tensors)
    : path_(kInMemory), memory_(std::move(tensors)) {
  for (const MemoryTensor& t : memory_->tensors) {
    const std::optional<std::uint64_t> bytes = byte_size(t.shape, t.dtype);
    if (bytes != t.bytes.size()) {
      throw ShapeError("{}: tensor {} has {} bytes, but {} of {} are {}", kInMemory, name_in_quotes(t.name),
                       t.bytes.size(), shape_text(t.shape), safetensors_name(t.dtype),
                       bytes ? fmt::to_string(*bytes) : "too many");
    }
    if (!places_.emplace(t.name, Place{0, tensors_.size()}).second) {
      throw ConfigError("{}: tensor {} occurs twice; give it once", kInMemory, name_in_quotes(t.name));
    }
    tensors_.push_back({t.name, t.dtype, t.shape, 0, *bytes});
  }
}

WeightFiles::WeightFiles(std::shared_ptr<const TensorSource> source) : path_(source->path()) {
  use_source(std::move(source));
}

void WeightFiles::use_source(std::shared_ptr<const TensorSource> source) {
  source_ = std::move(source);
  tensors_ = source_->tensors();
  for (std::size_t i = 0; i < tensors_.size(); ++i) places_.emplace(tensors_[i].name, Place{0, i});
}

std::vector<std::string> WeightFiles::notes() const {
  return source_ == nullptr ? std::vector<std::string>() : source_->notes();
}

const std::map<std::string, std::string>& WeightFiles::metadata() const {
  if (source_ != nullptr) return source_->metadata();
  return memory_ != nullptr ? memory_->metadata : shards_.front().metadata();
}

void WeightFiles::open(const fs::path& path) {
  if (path.extension() == ".json") {
    open_index(path);
  } else if (prefix_.empty() && pth::is_torch_file(path)) {  // a prefix selects tensors of a state
    use_source(std::make_shared<const pth::TorchFile>(path));
  } else {
    add_shard(path);
  }
}

void WeightFiles::open_index(const fs::path& index) {
  const auto fault = [&](const std::string& what) {
    throw FileError("{}: {}; download the model again", index.string(), what);
  };
  const nlohmann::json json = read_json_file(index);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object() || map->empty())
    fault("is not the index of a checkpoint, since it has no weight_map");
  std::set<std::string> files;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      fault(fmt::format("does not name a file in its folder for {}", name_in_quotes(name)));
    }
    files.insert(file.get<std::string>());
  }
  std::vector<fs::path> paths;
  for (const std::string& file : files) paths.push_back(index.parent_path() / file);
  if (pth::is_torch_file(paths.front())) {
    use_source(std::make_shared<const pth::TorchShards>(index, paths));
  } else {
    for (const fs::path& file : paths) add_shard(file);
  }
  for (const auto& [name, file] : map->items()) {
    if (find(name) == nullptr || path_of(name).filename() != file.get<std::string>()) {
      fault(fmt::format("assigns {} to {}, which does not contain it", name_in_quotes(name),
                        file.get<std::string>()));
    }
  }
}

void WeightFiles::add_shard(const fs::path& path) {
  const SafetensorsReader& shard = shards_.emplace_back(path);
  for (TensorInfo tensor : shard.tensors()) {
    if (!tensor.name.starts_with(prefix_)) continue;
    tensor.name.erase(0, prefix_.size());
    const Place place{shards_.size() - 1, tensors_.size()};
    const auto [other, added] = places_.emplace(tensor.name, place);
    if (!added) {
      throw FileError("{}: tensor {} is also in {}; download the model again", path.string(),
                      name_in_quotes(tensor.name), shards_[other->second.shard].path().filename().string());
    }
    tensors_.push_back(std::move(tensor));
  }
}

const TensorInfo* WeightFiles::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &tensors_[found->second.tensor];
}

const TensorInfo* WeightFiles::scale_of(std::string_view weight) const {
  for (const char* ending : {"_scale_inv", "_scale"}) {
    if (const TensorInfo* scale = find(std::string(weight) + ending); scale != nullptr) return scale;
  }
  return nullptr;
}

const WeightFiles::Place& WeightFiles::place(std::string_view name) const {
  const auto found = places_.find(name);
  if (found != places_.end()) return found->second;
  throw FileError("{}: has no tensor {}{}; check that it is a model of this type", path_.string(),
                  name_in_quotes(name),
                  tensors_.empty() ? ""
                                   : fmt::format(" (the first of its {} tensors is {})", tensors_.size(),
                                                 name_in_quotes(tensors_.front().name)));
}

const fs::path& WeightFiles::path_of(std::string_view name) const {
  const Place& at = place(name);
  if (source_ != nullptr) return source_->path_of(tensors_[at.tensor]);
  return shards_.empty() ? path_ : shards_[at.shard].path();
}

std::uint64_t WeightFiles::bytes() const {
  std::uint64_t sum = 0;
  for (const TensorInfo& tensor : tensors_) sum += tensor.end - tensor.begin;
  return sum;
}

void WeightFiles::read(std::string_view name, std::span<std::byte> out, std::uint64_t offset) const {
  const Place& at = place(name);
  if (source_ != nullptr) return source_->read(tensors_[at.tensor], out, offset);
  if (memory_ == nullptr) return shards_[at.shard].read(tensors_[at.tensor], out, offset);
  std::ranges::copy(memory_->tensors[at.tensor].bytes.subspan(offset, out.size()), out.begin());
}

WeightFiles::Mapped WeightFiles::map(std::string_view name) {
  const Place& at = place(name);
  if (memory_ != nullptr) return {memory_->tensors[at.tensor].bytes, memory_};
  if (source_ != nullptr) {
    const TensorInfo& tensor = tensors_[at.tensor];
    if (const std::span<const std::byte> view = source_->in_memory(tensor); !view.empty())
      return {view, source_, [source = source_](std::span<const std::byte> part) { source->release(part); }};
    auto copy = std::make_shared<std::vector<std::byte>>(tensor.end - tensor.begin);
    source_->read(tensor, *copy, 0);
    return {*copy, copy};
  }
  mappings_.resize(shards_.size());
  std::shared_ptr<const disk::Mapping>& mapping = mappings_[at.shard];
  if (mapping == nullptr) mapping = shards_[at.shard].map();
  return {shards_[at.shard].view(tensors_[at.tensor], *mapping), mapping,
          [mapping](std::span<const std::byte> part) { mapping->release(part); }};
}

std::optional<QuantizedTensor> WeightFiles::quantized(std::string_view name) const {
  if (source_ == nullptr) return std::nullopt;
  std::optional<QuantizedTensor> found = source_->quantized(tensors_[place(name).tensor]);
  if (found && found->keep == nullptr) found->keep = source_;
  return found;
}

template <class T>
void WeightFiles::read_as(std::string_view name, std::span<T> out) const {
  const Place& at = place(name);
  const TensorInfo& tensor = tensors_[at.tensor];
  if (static_cast<std::int64_t>(out.size()) != tensor.count()) {
    throw ShapeError("{}: tensor {} is {} with {} values, but the model expects {}; check config.json",
                     path_of(name).string(), name_in_quotes(name), shape_text(tensor.shape), tensor.count(),
                     out.size());
  }
  if (!is_readable_float(tensor.dtype)) {
    throw DtypeError("{}: tensor {} is {}, but weights must be F64, F32, BF16 or F16; convert the file first",
                     path_of(name).string(), name_in_quotes(name), safetensors_name(tensor.dtype));
  }
  const Dtype same = sizeof(T) == sizeof(double) ? Dtype::f64 : Dtype::f32;
  if (tensor.dtype == same) return read(name, std::as_writable_bytes(out));
  const std::size_t width = bytes_of(tensor.dtype), step = kPiece / width;
  std::vector<std::byte> piece(std::min(kPiece, out.size() * width));
  for (std::size_t i = 0; i < out.size(); i += step) {
    const std::span<T> part = out.subspan(i, std::min(step, out.size() - i));
    const std::span<std::byte> stored = std::span(piece).first(part.size() * width);
    read(name, stored, i * width);
    widen(stored, tensor.dtype, part);
  }
}

void WeightFiles::read_f32(std::string_view name, std::span<float> out) const {
  read_as(name, out);
}
void WeightFiles::read_f64(std::string_view name, std::span<double> out) const {
  read_as(name, out);
}

}  // namespace mantissa::io
