// A file's bytes as memory: read from the disk when they are touched, shared with whoever else reads the
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mantissa::io {

class File;

/// Read-only. A file that is replaced stays what it was. One that is changed in place changes here too, and
/// where it has become shorter the touching of what is missing ends the process with SIGBUS.
class Mapping {
 public:
  /// All of `file`, which may be closed afterwards. Throws FileError where the system refuses.
  explicit Mapping(const File& file);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mantissa::io
