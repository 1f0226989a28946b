#include "mantissa/core/disk/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "mantissa/core/disk/file.h"

namespace mantissa::disk {

Mapping::Mapping(const File& file) : size_(file.size()) {
  if (size_ == 0) return;
  void* p = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (p == MAP_FAILED) throw_read_error(file.path(), errno);
  data_ = static_cast<const std::byte*>(p);
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void Mapping::release(std::span<const std::byte> part) const {
  if (part.empty()) return;
  constexpr std::size_t kAround = std::size_t{1} << 16;  // what one access also maps, on either side
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = static_cast<std::size_t>(part.data() - data_);
  const std::size_t first = (begin - std::min(begin, kAround)) / page * page;
  const std::size_t last = std::min(size_, begin + part.size() + kAround);
  madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);  // on failure they stay
}

}  // namespace mantissa::disk
