// The tensors of weight files under other names, some of them transposed.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::rwkv {

class RenamedSource final : public io::TensorSource {
 public:
  struct Entry {
    io::TensorInfo tensor;    // as it is read
    std::string from;         // its name in the files; "": it consists of zeros
    bool transposed = false;  // the files hold its transpose
  };

  RenamedSource(io::WeightFiles files, std::filesystem::path path, std::vector<Entry> entries,
                std::map<std::string, std::string> metadata);

  const std::vector<io::TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const std::filesystem::path& path() const override { return path_; }
  const std::filesystem::path& path_of(const io::TensorInfo& tensor) const override;
  void read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override;
  std::span<const std::byte> in_memory(const io::TensorInfo& tensor) const override;
  void release(std::span<const std::byte> part) const override;

 private:
  const Entry& entry(const io::TensorInfo& tensor) const { return *by_name_.at(tensor.name); }
  std::shared_ptr<const std::vector<std::byte>> transposed(const Entry& entry) const;

  io::WeightFiles files_;
  std::filesystem::path path_;
  std::vector<Entry> entries_;
  std::vector<io::TensorInfo> tensors_;
  std::map<std::string, const Entry*> by_name_;
  std::map<std::string, std::string> metadata_;

  mutable std::mutex mutex_;  // of the matrix that was transposed last
  mutable const Entry* last_ = nullptr;
  mutable std::shared_ptr<const std::vector<std::byte>> last_values_;
};

}  // namespace mantissa::rwkv
