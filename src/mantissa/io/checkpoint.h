// A model directory in Hugging Face's layout: config.json and the weights, in one safetensors file or in
// shards with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/io/safetensors.h"

namespace mantissa::io {

/// The entry of a weight file's metadata that keeps what the scales of a run were made from
/// (docs/numerics.md, "Scales of tensors"): a JSON object, tensor and element to largest magnitude.
inline constexpr const char* kAmaxKey = "mantissa.amax";

/// A model to write. Everything is borrowed until write_model returns.
struct ModelToWrite {
  std::string config_json;                                 // config.json
  std::string generation_config_json;                      // generation_config.json; not written where empty
  std::vector<std::pair<std::string, std::string>> files;  // further files (a tokenizer's): name and contents
  std::span<const TensorToWrite> tensors;
  /// Into every weight file, beside "format": "pt" that transformers asks for. By custom "mantissa.policy",
  /// the policy's line, and "mantissa.rounded_to", the format that the weights were last rounded to.
  std::map<std::string, std::string> metadata;
  std::uint64_t shard_bytes =
      5'000'000'000;  // a weight file holds at most this many bytes of tensors, or one larger tensor
};

/// Writes `directory` whole: what was there is replaced when the new one is on the disk. Returns the xxh64 of
/// all tensors' bytes in order, which does not depend on `shard_bytes`. Throws ResourceError where the disk
/// is full, ConfigError or ShapeError where a tensor cannot be written.
std::uint64_t write_model(const std::filesystem::path& directory, const ModelToWrite& model);

/// The weights of a model directory, or of one safetensors file or index, checked when opened; values are
/// read when asked for.
class WeightFiles {
 public:
  /// `prefix`: only the tensors whose names begin with it are seen, and by the rest of their names. Throws
  /// FileError where there are no weights, or they do not fit their index.
  explicit WeightFiles(const std::filesystem::path& path, std::string prefix = {});

  /// The tensor with the scale of the 8-bit weight called `weight`, by the names that quantised checkpoints
  /// give it ("…weight_scale_inv", "…weight_scale"); nullptr where there is none.
  const TensorInfo* scale_of(std::string_view weight) const;
  /// Of all shards; shard by shard in the order of their names, within one by place.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// nullptr where there is no such tensor.
  const TensorInfo* find(std::string_view name) const;
  /// The files, by name.
  const std::vector<SafetensorsReader>& shards() const { return shards_; }
  /// Of the first shard.
  const std::map<std::string, std::string>& metadata() const { return shards_.front().metadata(); }
  std::uint64_t bytes() const;

  /// Reads a tensor stored as F64, F32, BF16 or F16: exact, but for F64 read as f32, which rounds to nearest
  /// even. Throws FileError where there is no such tensor, ShapeError where `out` has not its number of
  /// elements, DtypeError for other dtypes.
  void read_f32(std::string_view name, std::span<float> out) const;
  void read_f64(std::string_view name, std::span<double> out) const;
  /// The stored bytes from `offset` on, whatever their dtype.
  void read(std::string_view name, std::span<std::byte> out, std::uint64_t offset = 0) const;

  /// The stored bytes as memory (io/mapping.h), which `keep` holds.
  struct Mapped {
    std::span<const std::byte> bytes;
    std::shared_ptr<const Mapping> keep;
  };
  Mapped map(std::string_view name);

  /// The weights' file that holds the tensor.
  const std::filesystem::path& path_of(std::string_view name) const;

 private:
  struct Place {
    std::size_t shard = 0, tensor = 0;  // tensor: index into tensors_
  };
  void open(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& index);
  void add_shard(const std::filesystem::path& path);
  const Place& place(std::string_view name) const;
  template <class T>
  void read_as(std::string_view name, std::span<T> out) const;

  std::filesystem::path path_;  // as given
  std::string prefix_;
  std::vector<SafetensorsReader> shards_;
  std::vector<std::shared_ptr<const Mapping>> mappings_;  // of the shards that were mapped
  std::vector<TensorInfo> tensors_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace mantissa::io
