#include "mantissa/core/tensor/storage.h"

#include <sys/mman.h>

#include <utility>

#include "mantissa/core/base/error_text.h"

namespace mantissa {

Storage::Storage(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  // Anonymous pages are zeroed by the system, counted when first touched, and returned whole.
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    throw ResourceError("memory: cannot allocate {} bytes. Fix: a smaller batch.micro_batch_size or model",
                        bytes);
  }
  madvise(p, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(p);
}

Storage::~Storage() {
  if (data_ != nullptr) munmap(data_, size_);
}

Storage::Storage(Storage&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Storage& Storage::operator=(Storage&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace mantissa
