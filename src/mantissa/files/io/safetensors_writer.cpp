#include <algorithm>
#include <bit>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/files/io/safetensors_stream.h"

namespace mantissa::io {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and written as they are");

namespace {

// Small enough to be hashed from the cache, large enough to make system calls negligible.
constexpr std::uint64_t kWritten = 1 << 17;

class Stream {
 public:
  Stream(const disk::Target& target, Hash64& data) : file_(target), data_(data) {}

  void header(std::string_view text) {
    const std::uint64_t length = text.size();
    put(std::as_bytes(std::span(&length, 1)));
    put(std::as_bytes(std::span(text)));
  }
  void tensor(const TensorToWrite& tensor) {
    const std::uint64_t bytes = byte_size(tensor.shape, tensor.dtype).value_or(0);
    for (std::uint64_t at = 0; at < bytes; at += kWritten) {
      const std::uint64_t length = std::min(kWritten, bytes - at);
      std::span<const std::byte> piece;
      if (tensor.bytes.empty()) {
        buffer_.resize(kWritten);
        const std::span<std::byte> out = std::span(buffer_).first(length);
        tensor.fill(at, out);
        piece = out;
      } else {
        piece = tensor.bytes.subspan(at, length);
      }
      data_.update(piece);
      put(piece);
    }
  }
  WrittenFile commit() {
    file_.commit();
    return {bytes_, hash_.digest()};
  }

 private:
  void put(std::span<const std::byte> bytes) {
    hash_.update(bytes);
    file_.write(bytes);
    bytes_ += bytes.size();
  }

  disk::AtomicFile file_;
  Hash64& data_;
  Hash64 hash_;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

WrittenFile stream_safetensors(const disk::Target& target, std::span<const TensorToWrite> tensors,
                               const std::map<std::string, std::string>& metadata, Hash64& data) {
  const std::string header = build_header(tensors, metadata);  // throws before any file is touched
  Stream stream(target, data);
  stream.header(header);
  for (const TensorToWrite& tensor : tensors) stream.tensor(tensor);
  return stream.commit();
}

std::uint64_t write_safetensors(const disk::Target& target, std::span<const TensorToWrite> tensors,
                                const std::map<std::string, std::string>& metadata) {
  Hash64 data;
  stream_safetensors(target, tensors, metadata, data);
  return data.digest();
}

}  // namespace mantissa::io
