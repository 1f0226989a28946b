#include "mantissa/files/io/pth/torch_shards.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::io::pth {

TorchShards::TorchShards(const std::filesystem::path& index, const std::vector<std::filesystem::path>& files)
    : index_(index) {
  for (const std::filesystem::path& file : files) {
    const TorchFile& shard = *shards_.emplace_back(std::make_unique<const TorchFile>(file));
    for (const TensorInfo& tensor : shard.tensors()) {
      const auto [other, added] = shard_of_.emplace(tensor.name, &shard);
      if (!added) {
        throw FileError("{}: tensor {} is also in {}; download the model again", file.string(),
                        name_in_quotes(tensor.name), other->second->path().filename().string());
      }
      tensors_.push_back(tensor);
    }
  }
}

const TorchFile& TorchShards::shard(const TensorInfo& tensor) const {
  const auto found = shard_of_.find(tensor.name);
  if (found == shard_of_.end())
    throw FileError("{}: has no tensor {}", index_.string(), name_in_quotes(tensor.name));
  return *found->second;
}

const std::filesystem::path& TorchShards::path_of(const TensorInfo& tensor) const {
  return shard(tensor).path();
}

std::vector<std::string> TorchShards::notes() const {
  std::vector<std::string> all;
  for (const auto& shard : shards_) {
    const std::vector<std::string> notes = shard->notes();
    all.insert(all.end(), notes.begin(), notes.end());
  }
  return all;
}

void TorchShards::read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const {
  shard(tensor).read(tensor, out, offset);
}

std::span<const std::byte> TorchShards::in_memory(const TensorInfo& tensor) const {
  return shard(tensor).in_memory(tensor);
}

std::vector<std::string> TorchShards::same_as(const TensorInfo& tensor) const {
  return shard(tensor).same_as(tensor);
}

std::optional<TensorSource::View> TorchShards::view_of(const TensorInfo& tensor) const {
  return shard(tensor).view_of(tensor);
}

}  // namespace mantissa::io::pth
