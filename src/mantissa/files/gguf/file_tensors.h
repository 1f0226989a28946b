// The tensors of any GGUF file under their own names, with dequantized values.
#pragma once

#include <memory>

#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::gguf {

/// Tensors of types that cannot be dequantized appear as U8 with one element per byte, so that they can be
/// listed. They are in the order of the file.
class FileTensors final : public io::TensorSource {
 public:
  explicit FileTensors(std::shared_ptr<const GgufFile> file);

  const std::vector<io::TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const std::filesystem::path& path() const override { return file_->path(); }
  void read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override;

 private:
  std::shared_ptr<const GgufFile> file_;
  std::vector<io::TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace mantissa::gguf
