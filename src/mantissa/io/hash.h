// xxh64 (seed 0) over bytes that come in pieces: what a file's checksum is made of. https://xxhash.com
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace mantissa::io {

class File;

class Hash64 {
 public:
  Hash64();
  ~Hash64();
  Hash64(Hash64&&) noexcept;
  Hash64& operator=(Hash64&&) noexcept;

  void update(std::span<const std::byte> bytes);
  /// Of all bytes so far; more may follow.
  std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 16 lower-case hexadecimal digits, as `xxhsum -H64` prints them.
std::string hex(std::uint64_t hash);

/// Of a whole file, read piece by piece.
std::uint64_t hash_of(const File& file);

}  // namespace mantissa::io
