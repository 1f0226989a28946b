// Little-endian integers in bytes that are not trusted.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

namespace mantissa::io::pth {

/// Returns the integer at `offset`. `bytes` must contain all of it.
template <std::integral T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

}  // namespace mantissa::io::pth
