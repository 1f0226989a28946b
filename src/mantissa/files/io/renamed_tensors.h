// Some tensors of a source under other names.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/files/io/tensor_source.h"

namespace mantissa::io {

class RenamedTensors final : public TensorSource {
 public:
  explicit RenamedTensors(std::shared_ptr<const TensorSource> source) : source_(std::move(source)) {}

  /// Adds `tensor`, one of those of the source, under `name`.
  void add(std::string name, const TensorInfo& tensor) {
    originals_.emplace(name, tensor);
    TensorInfo& renamed = tensors_.emplace_back(tensor);
    renamed.name = std::move(name);
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return source_->metadata(); }
  const std::filesystem::path& path() const override { return source_->path(); }
  void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override {
    source_->read(originals_.at(tensor.name), out, offset);
  }
  std::span<const std::byte> in_memory(const TensorInfo& tensor) const override {
    return source_->in_memory(originals_.at(tensor.name));
  }
  void release(std::span<const std::byte> part) const override { source_->release(part); }

 private:
  std::shared_ptr<const TensorSource> source_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, TensorInfo> originals_;  // by new name
};

}  // namespace mantissa::io
