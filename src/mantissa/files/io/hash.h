// xxh64 (seed 0) of bytes that arrive in pieces, used for file checksums. https://xxhash.com
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mantissa::disk {
class File;
}

namespace mantissa::io {

class Hash64 {
 public:
  Hash64();
  ~Hash64();
  Hash64(Hash64&&) noexcept;
  Hash64& operator=(Hash64&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Returns the hash of all bytes so far; more may follow.
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Formats a hash as 16 lower-case hexadecimal digits, as `xxhsum -H64` does.
std::string hex(std::uint64_t hash);

/// Returns the hash of a whole file, read in pieces.
std::uint64_t hash_of(const disk::File& file);

}  // namespace mantissa::io
