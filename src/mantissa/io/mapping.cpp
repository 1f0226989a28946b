#include "mantissa/io/mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#include "mantissa/base/error.h"
#include "mantissa/io/file.h"

namespace mantissa::io {

Mapping::Mapping(const File& file) : size_(file.size()) {
  if (size_ == 0) return;
  void* p = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (p == MAP_FAILED) {
    throw FileError(fmt::format("{}: cannot be mapped: {}", file.path().string(),
                                std::generic_category().message(errno)));
  }
  data_ = static_cast<const std::byte*>(p);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace mantissa::io
