// A model directory in Hugging Face's layout: config.json and the weights, in one safetensors file or in
// shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/disk/mapping.h"
#include "mantissa/files/io/memory_tensors.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {

/// The metadata entry of a weight file that stores the magnitudes behind a run's scales (docs/numerics.md,
/// "Scales of tensors"): a JSON object from tensor and element to largest magnitude.
inline constexpr const char* kAmaxKey = "mantissa.amax";

/// A model to write. All data is borrowed until write_model returns.
struct ModelToWrite {
  std::string config_json;             // config.json
  std::string generation_config_json;  // generation_config.json; not written if empty
  // additional files, such as a tokenizer's: name and contents
  std::vector<std::pair<std::string, std::string>> files;
  std::span<const TensorToWrite> tensors;
  /// Metadata of every weight file, in addition to "format": "pt", which transformers requires. By convention
  /// it holds "mantissa.policy", the policy's line, and "mantissa.rounded_to", the format of the weights'
  /// last rounding.
  std::map<std::string, std::string> metadata;
  std::uint64_t shard_bytes = 5'000'000'000;  // most bytes of tensors per weight file, or one larger tensor
};

/// Writes `directory` atomically: the new directory replaces the old one once it is on the disk. Returns the
/// xxh64 of all tensors' bytes in order, which does not depend on `shard_bytes`. Throws ResourceError if the
/// disk is full, and ConfigError or ShapeError if a tensor cannot be written.
std::uint64_t write_model(const std::filesystem::path& directory, const ModelToWrite& model);

/// Returns the weights of a model directory: model.safetensors, its index, or the only safetensors file but
/// for traces and states of sequences; without these pytorch_model.bin, its index, or the only .pth or .pt
/// file. Throws FileError if there are none.
std::filesystem::path find_weights(const std::filesystem::path& directory);
/// Returns true if `directory` has weights under one of the usual names: model.safetensors,
/// pytorch_model.bin, or the index of one.
bool has_usual_weights(const std::filesystem::path& directory);

/// The weights of a model directory, or of one safetensors file, checkpoint of PyTorch, or index. Opening
/// checks the files; values are read on demand.
class WeightFiles {
 public:
  /// Reads only the tensors whose names begin with `prefix`, under the rest of their names. Throws FileError
  /// if the weights are missing or do not match their index.
  explicit WeightFiles(const std::filesystem::path& path, std::string prefix = {});

  /// Reads tensors in memory instead of files. Throws ShapeError if the number of bytes of a tensor does not
  /// match its shape, and ConfigError if a name occurs twice.
  explicit WeightFiles(std::shared_ptr<const MemoryTensors> tensors);

  /// Reads the tensors of `source`, such as those of a file of another layout.
  explicit WeightFiles(std::shared_ptr<const TensorSource> source);

  /// Returns the tensor with the scale of the 8-bit weight `weight`, by the names used in quantized
  /// checkpoints ("…weight_scale_inv", "…weight_scale"), or nullptr.
  const TensorInfo* scale_of(std::string_view weight) const;
  /// Returns the tensors of all shards: shards in order of their names, and within a shard by offset.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// Returns the tensor `name`, or nullptr.
  const TensorInfo* find(std::string_view name) const;
  /// Returns the safetensors files in order of their names; empty for tensors in memory or of a source.
  const std::vector<SafetensorsReader>& shards() const { return shards_; }
  /// Returns the metadata of the first shard, of the tensors in memory, or of the source.
  const std::map<std::string, std::string>& metadata() const;
  std::uint64_t bytes() const;
  /// Returns the source of the tensors, or null if they are in memory or in safetensors files.
  const TensorSource* source() const { return source_.get(); }
  /// Returns notes for the user on how the files were read.
  std::vector<std::string> notes() const;

  /// Reads a tensor stored as F64, F32, BF16 or F16. Exact, except that F64 rounds to nearest even in f32.
  /// Throws FileError if the tensor does not exist, ShapeError if the size of `out` differs from its number
  /// of elements, and DtypeError for other dtypes.
  void read_f32(std::string_view name, std::span<float> out) const;
  void read_f64(std::string_view name, std::span<double> out) const;
  /// Reads stored bytes of any dtype, starting at byte `offset` of the tensor.
  void read(std::string_view name, std::span<std::byte> out, std::uint64_t offset = 0) const;

  /// A tensor's stored bytes as memory: mapped (core/disk/mapping.h), those of a tensor in memory, or a copy
  /// of those of a source that is not in memory as such. `keep` keeps them alive.
  struct Mapped {
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> keep;
    /// Takes the pages of a part of `bytes` out of memory until the next access. Null: not mapped.
    std::function<void(std::span<const std::byte>)> release = {};
  };
  Mapped map(std::string_view name);
  /// Returns the tensor in quantized blocks, if its source stores it so, or null.
  std::optional<QuantizedTensor> quantized(std::string_view name) const;

  /// Returns the path of the weight file that contains the tensor.
  const std::filesystem::path& path_of(std::string_view name) const;

 private:
  struct Place {
    std::size_t shard = 0, tensor = 0;  // tensor: index into tensors_
  };
  void open(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& index);
  void add_shard(const std::filesystem::path& path);
  void use_source(std::shared_ptr<const TensorSource> source);
  const Place& place(std::string_view name) const;
  template <class T>
  void read_as(std::string_view name, std::span<T> out) const;

  std::filesystem::path path_;  // as given
  std::string prefix_;
  std::shared_ptr<const MemoryTensors> memory_;  // in place of shards
  std::shared_ptr<const TensorSource> source_;   // in place of shards
  std::vector<SafetensorsReader> shards_;
  std::vector<std::shared_ptr<const disk::Mapping>> mappings_;  // of the mapped shards
  std::vector<TensorInfo> tensors_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace mantissa::io
