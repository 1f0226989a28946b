#include "mantissa/setup/weights/frozen_hash.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mantissa/files/io/hash.h"

namespace mantissa::weights {
namespace {

class FrozenHash {
 public:
  explicit FrozenHash(const runtime::WeightSet& weights) : weights_(weights) {}

  /// Adds a master or copy, unless the set does not have it. What it has in blocks, its own or those of a
  /// file, are the bytes of the blocks.
  void add(plan::BufferId id) {
    const plan::Buffer& buffer = weights_.program().buffer(id);
    const std::byte* data = weights_.find(weights_.program(), id);
    if (data == nullptr) return;
    any_ = true;
    const std::optional<QuantizedMatrix> quants = weights_.quants(weights_.program(), id);
    const std::string_view format = quants ? traits(quants->format).name : traits(buffer.type).name;
    const std::string name = fmt::format("{} {}\n", buffer.name, format);
    hash_.update(std::as_bytes(std::span(name)));
    // In pieces: what only this hash reads of a mapped file should take no memory.
    constexpr std::size_t kPiece = std::size_t{1} << 18;
    std::vector<std::byte> staging;
    const std::size_t all = quants ? quants->bytes(buffer.shape) : buffer.stored_bytes();
    for (std::size_t at = 0; at < all; at += kPiece) {
      const std::size_t size = std::min(kPiece, all - at);
      hash_.update(weights_.device().view(data + at, size, staging));
      weights_.release_unread(id, {data + at, size});
    }
  }
  std::string text() const { return any_ ? io::hex(hash_.digest()) : std::string(); }

 private:
  const runtime::WeightSet& weights_;
  io::Hash64 hash_;
  bool any_ = false;
};

}  // namespace

std::string hash_of_quantized(const runtime::WeightSet& weights) {
  FrozenHash hash(weights);
  for (const plan::Slot& slot : weights.program().slots) {
    if (weights.program().buffer(slot.master_buffer).quants) hash.add(slot.master_buffer);
  }
  return hash.text();
}

std::string hash_of_fixed(const runtime::WeightSet& weights) {
  FrozenHash hash(weights);
  for (const plan::Slot& slot : weights.program().slots) {
    if (!slot.fixed || weights.program().buffer(slot.master_buffer).quants) continue;
    hash.add(slot.master_buffer);
    for (const plan::BufferId copy : slot.copies) {
      if (!weights.program().buffer(copy).is_derived()) hash.add(copy);
    }
  }
  return hash.text();
}

}  // namespace mantissa::weights
