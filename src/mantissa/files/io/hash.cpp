#include "mantissa/files/io/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <new>
#include <vector>

#include "mantissa/core/disk/file.h"

namespace mantissa::io {

struct Hash64::State {
  XXH64_state_t* of = XXH64_createState();
  State() {
    if (of == nullptr) throw std::bad_alloc();
    XXH64_reset(of, 0);
  }
  ~State() { XXH64_freeState(of); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Hash64::Hash64() : state_(std::make_unique<State>()) {}
Hash64::~Hash64() = default;
Hash64::Hash64(Hash64&&) noexcept = default;
Hash64& Hash64::operator=(Hash64&&) noexcept = default;

void Hash64::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(state_->of, bytes.data(), bytes.size());
}

std::uint64_t Hash64::digest() const {
  return XXH64_digest(state_->of);
}

std::string hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::uint64_t hash_of(const disk::File& file) {
  constexpr std::uint64_t kPiece = 1 << 16;
  const std::uint64_t size = file.size();
  std::vector<std::byte> piece(std::min(size, kPiece));
  Hash64 hash;
  for (std::uint64_t at = 0; at < size; at += kPiece) {
    const std::span<std::byte> part(piece.data(), std::min(kPiece, size - at));
    file.read_at(at, part);
    hash.update(part);
  }
  return hash.digest();
}

}  // namespace mantissa::io
