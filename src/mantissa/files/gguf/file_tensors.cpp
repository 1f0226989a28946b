#include "mantissa/files/gguf/file_tensors.h"

#include <algorithm>

#include "mantissa/files/gguf/stored_values.h"

namespace mantissa::gguf {

FileTensors::FileTensors(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
  for (const FileTensor& tensor : file_->tensors()) {
    if (!tensor.type->readable) {
      tensors_.push_back(
          {tensor.name, io::Dtype::u8, {static_cast<std::int64_t>(tensor.bytes)}, 0, tensor.bytes});
      continue;
    }
    const io::Dtype dtype = value_dtype(*file_, tensor);
    tensors_.push_back({tensor.name, dtype, tensor.shape, 0, tensor.count() * io::bytes_of(dtype)});
  }
}

void FileTensors::read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const {
  const FileTensor& from = *file_->find(tensor.name);
  if (from.type->readable) return read_values(*file_, from, offset / io::bytes_of(tensor.dtype), out);
  std::ranges::copy(file_->data(from).subspan(offset, out.size()), out.begin());
}

}  // namespace mantissa::gguf
