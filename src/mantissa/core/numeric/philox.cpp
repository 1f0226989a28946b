#include "mantissa/core/numeric/philox.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mantissa {
namespace {

using u32 = std::uint32_t;
using u64 = std::uint64_t;

u32 low(u64 x) {
  return static_cast<u32>(x);
}
u32 high(u64 x) {
  return static_cast<u32>(x >> 32);
}

/// The upper 53 bits of two words as an integer.
double integer53(u32 upper, u32 lower) {
  return static_cast<double>(((u64{upper} << 32) | lower) >> 11);
}

}  // namespace

PhiloxBlock philox(PhiloxBlock c, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const u64 product0 = u64{kPhiloxMultiply0} * c[0];
    const u64 product1 = u64{kPhiloxMultiply1} * c[2];
    c = {high(product1) ^ c[1] ^ key[0], low(product1), high(product0) ^ c[3] ^ key[1], low(product0)};
    key[0] += kPhiloxAdd0;
    key[1] += kPhiloxAdd1;
  }
  return c;
}

u64 hash_name(std::string_view name) {
  return XXH3_64bits(name.data(), name.size());
}

RandomStream::RandomStream(u64 seed, RandomUse use, u64 name_hash, u64 step) {
  const u64 purpose = step | (static_cast<u64>(use) << 56);
  const PhiloxBlock mixed =
      philox({low(name_hash), high(name_hash), low(purpose), high(purpose)}, {low(seed), high(seed)});
  key_ = {mixed[0], mixed[1]};
  counter_high_ = {mixed[2], mixed[3]};
}

PhiloxBlock RandomStream::block(u64 number) const {
  return philox({low(number), high(number), counter_high_[0], counter_high_[1]}, key_);
}

u32 RandomStream::bits(u64 index) const {
  return block(index / 4)[index % 4];
}

double uniform(const RandomStream& stream, u64 index) {
  const PhiloxBlock words = stream.block(index);
  return integer53(words[0], words[1]) * 0x1p-53;
}

}  // namespace mantissa
