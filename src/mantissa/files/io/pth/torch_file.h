// A checkpoint of PyTorch (.pth, .pt, pytorch_model.bin): a zip archive with a pickle and its storages.
#pragma once

#include <memory>

#include "mantissa/core/disk/mapping.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::io::pth {

/// The entry of an archive with the metadata of a file that was written here: a JSON object of strings.
inline constexpr const char* kMetadataEntry = "mantissa.json";

/// True if `path` begins like a checkpoint of PyTorch, or has the extension of one and does not begin like a
/// safetensors file. Throws FileError if it cannot be read.
bool is_torch_file(const std::filesystem::path& path);

/// The tensors of a file, row-major. Opening checks it completely: the archive, the pickle, and that each
/// tensor lies within its storage. Errors are FileErrors that say how to mend the file.
class TorchFile final : public TensorSource {
 public:
  explicit TorchFile(const std::filesystem::path& path);

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const std::filesystem::path& path() const override { return path_; }
  std::vector<std::string> notes() const override { return notes_; }
  void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override;
  std::span<const std::byte> in_memory(const TensorInfo& tensor) const override;
  std::vector<std::string> same_as(const TensorInfo& tensor) const override;
  std::optional<View> view_of(const TensorInfo& tensor) const override;

 private:
  /// A tensor's bytes in the file.
  struct Stored {
    std::uint64_t storage = 0;
    std::uint64_t begin = 0;            // of its first element
    std::vector<std::int64_t> strides;  // in elements
    bool contiguous = false;
  };
  const Stored& stored(const TensorInfo& tensor) const;

  std::filesystem::path path_;
  std::shared_ptr<const disk::Mapping> mapping_;
  std::vector<TensorInfo> tensors_;
  std::vector<Stored> stored_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> notes_;
};

}  // namespace mantissa::io::pth
