// The tensors of several checkpoints of PyTorch as those of one.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/files/io/pth/torch_file.h"

namespace mantissa::io::pth {

class TorchShards final : public TensorSource {
 public:
  /// Opens `files`, the shards of `index`. Throws FileError if one is invalid, or if two contain a tensor of
  /// the same name.
  TorchShards(const std::filesystem::path& index, const std::vector<std::filesystem::path>& files);

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return shards_.front()->metadata(); }
  const std::filesystem::path& path() const override { return index_; }
  const std::filesystem::path& path_of(const TensorInfo& tensor) const override;
  std::vector<std::string> notes() const override;
  void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override;
  std::span<const std::byte> in_memory(const TensorInfo& tensor) const override;
  std::vector<std::string> same_as(const TensorInfo& tensor) const override;
  std::optional<View> view_of(const TensorInfo& tensor) const override;

 private:
  const TorchFile& shard(const TensorInfo& tensor) const;

  std::filesystem::path index_;
  std::vector<std::unique_ptr<const TorchFile>> shards_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, const TorchFile*, std::less<>> shard_of_;
};

}  // namespace mantissa::io::pth
