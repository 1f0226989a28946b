// A file mapped into memory: pages are read from the disk on first access and shared with other readers of
// the file.
#pragma once

#include <cstddef>
#include <span>

namespace mantissa::disk {

class File;

/// A read-only mapping. Replacing the file does not affect it. Changing the file in place does; if the file
/// becomes shorter, access to the missing part ends the process with SIGBUS.
class Mapping {
 public:
  /// Maps all of `file`, which may be closed afterwards. Throws FileError if the system call fails.
  explicit Mapping(const File& file);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  /// Takes the pages of `part`, which lies in bytes(), out of the process's memory. The next access reads
  /// them again, usually from the system's cache.
  void release(std::span<const std::byte> part) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mantissa::disk
