#include "mantissa/files/convert/tensor_file.h"

#include <vector>

#include "mantissa/files/io/safetensors_header.h"

namespace mantissa::convert {
namespace {

class SafetensorsFile final : public TensorFile {
 public:
  SafetensorsFile(std::span<const io::TensorToWrite> tensors,
                  const std::map<std::string, std::string>& metadata)
      : header_(io::build_header(tensors, metadata)) {
    bytes_ = sizeof(std::uint64_t) + header_.size();
    for (const io::TensorToWrite& tensor : tensors) {
      begins_.push_back(bytes_);
      bytes_ += io::byte_size(tensor.shape, tensor.dtype).value_or(0);
    }
  }

  std::uint64_t bytes() const override { return bytes_; }
  std::uint64_t begin(std::size_t tensor) const override { return begins_[tensor]; }
  bool needs_crcs() const override { return false; }
  void write_around(disk::AtomicFile& file, std::span<const io::pth::Crc> /*crcs*/) const override {
    const std::uint64_t length = header_.size();
    file.write_at(0, std::as_bytes(std::span(&length, 1)));
    file.write_at(sizeof(length), std::as_bytes(std::span(header_)));
  }

 private:
  std::string header_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t bytes_ = 0;
};

class TorchFile final : public TensorFile {
 public:
  TorchFile(std::span<const io::TensorToWrite> tensors, const std::map<std::string, std::string>& metadata)
      : layout_(tensors, metadata) {}

  std::uint64_t bytes() const override { return layout_.bytes(); }
  std::uint64_t begin(std::size_t tensor) const override { return layout_.begin(tensor); }
  bool needs_crcs() const override { return true; }
  void write_around(disk::AtomicFile& file, std::span<const io::pth::Crc> crcs) const override {
    layout_.write_around(
        crcs, [&](std::uint64_t offset, std::span<const std::byte> bytes) { file.write_at(offset, bytes); });
  }

 private:
  io::pth::TorchLayout layout_;
};

}  // namespace

std::unique_ptr<const TensorFile> lay_out(Container container, std::span<const io::TensorToWrite> tensors,
                                          const std::map<std::string, std::string>& metadata) {
  if (container == Container::torch) return std::make_unique<const TorchFile>(tensors, metadata);
  return std::make_unique<const SafetensorsFile>(tensors, metadata);
}

}  // namespace mantissa::convert
