#include <algorithm>
#include <bit>
#include <vector>

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

/// Calls each(offset, bytes) for the pieces of a tensor, in their order.
template <class Each>
void for_each_piece(const TensorToWrite& tensor, std::vector<std::byte>& buffer, const Each& each) {
  const std::uint64_t bytes = byte_size(tensor.shape, tensor.dtype).value_or(0);
  for (std::uint64_t at = 0; at < bytes; at += kWritten) {
    const std::uint64_t length = std::min(kWritten, bytes - at);
    if (!tensor.bytes.empty()) {
      each(at, tensor.bytes.subspan(at, length));
      continue;
    }
    buffer.resize(kWritten);
    const std::span<std::byte> out = std::span(buffer).first(length);
    tensor.fill(at, out);
    each(at, out);
  }
}

class Stream {
 public:
  Stream(const disk::Target& target, Hash64& data) : file_(target), data_(data) {}

  void header(std::string_view text) {
    const std::uint64_t length = text.size();
    put(std::as_bytes(std::span(&length, 1)));
    put(std::as_bytes(std::span(text)));
  }
  void tensor(const TensorToWrite& tensor) {
    for_each_piece(tensor, buffer_, [&](std::uint64_t, std::span<const std::byte> piece) {
      data_.update(piece);
      put(piece);
    });
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

PlacedSafetensors::PlacedSafetensors(const disk::Target& target, std::span<const TensorToWrite> tensors)
    : path_(target.path), file_(target) {
  const std::string header = build_header(tensors, {});
  const std::uint64_t length = header.size();
  std::uint64_t at = sizeof length + length;
  for (const TensorToWrite& tensor : tensors) {
    offsets_.push_back(at);
    at += byte_size(tensor.shape, tensor.dtype).value_or(0);
  }
  offsets_.push_back(at);
  file_.reserve(at);
  file_.write_at(0, std::as_bytes(std::span(&length, 1)));
  file_.write_at(sizeof length, std::as_bytes(std::span(header)));
}

WrittenFile PlacedSafetensors::commit(const SeePiece& sees) {
  file_.commit();
  const disk::File file = disk::File::open_to_read(path_);
  Hash64 hash;
  std::vector<std::byte> buffer(kWritten);
  const auto read = [&](std::uint64_t begin, std::uint64_t end, const auto& each) {
    for (std::uint64_t at = begin; at < end; at += kWritten) {
      const std::span<std::byte> piece = std::span(buffer).first(std::min(kWritten, end - at));
      file.read_at(at, piece);
      hash.update(piece);
      each(piece);
    }
  };
  read(0, offsets_.front(), [](std::span<const std::byte>) {});
  for (std::size_t i = 0; i + 1 < offsets_.size(); ++i)
    read(offsets_[i], offsets_[i + 1], [&](std::span<const std::byte> piece) { sees(i, piece); });
  return {offsets_.back(), hash.digest()};
}

void write_tensor(disk::File& file, std::uint64_t offset, const TensorToWrite& tensor, Hash64& hash) {
  std::vector<std::byte> buffer;
  for_each_piece(tensor, buffer, [&](std::uint64_t at, std::span<const std::byte> piece) {
    hash.update(piece);
    file.write_at(offset + at, piece);
  });
}

}  // namespace mantissa::io
