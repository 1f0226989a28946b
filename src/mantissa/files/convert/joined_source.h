// The tensors of weight files, whatever their kind and number, as those of one file.
#pragma once

#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::convert {

/// Borrows `files`.
class JoinedSource final : public io::TensorSource {
 public:
  explicit JoinedSource(const io::WeightFiles& files) : files_(files) {}

  const std::vector<io::TensorInfo>& tensors() const override { return files_.tensors(); }
  const std::map<std::string, std::string>& metadata() const override { return files_.metadata(); }
  const std::filesystem::path& path() const override { return path_of(files_.tensors().front()); }
  const std::filesystem::path& path_of(const io::TensorInfo& tensor) const override {
    return files_.path_of(tensor.name);
  }
  void read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override {
    files_.read(tensor.name, out, offset);
  }
  std::vector<std::string> same_as(const io::TensorInfo& tensor) const override {
    return files_.source() == nullptr ? std::vector<std::string>() : files_.source()->same_as(tensor);
  }

 private:
  const io::WeightFiles& files_;
};

}  // namespace mantissa::convert
