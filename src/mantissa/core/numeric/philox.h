// Stateless random bits: Philox 4x32-10, a function of a key and a counter (Salmon, Moraes, Dror, Shaw:
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The result does not depend on thread, order or
// instruction set.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace mantissa {

using PhiloxBlock = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

/// The multipliers of a round, and the increments of the key after it.
inline constexpr std::uint32_t kPhiloxMultiply0 = 0xD2511F53, kPhiloxMultiply1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxAdd0 = 0x9E3779B9, kPhiloxAdd1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

/// Returns four random words for a counter.
PhiloxBlock philox(PhiloxBlock counter, PhiloxKey key);

/// Returns the 64-bit key of a parameter's name (xxHash's XXH3).
std::uint64_t hash_name(std::string_view name);

/// The purpose of random numbers; two purposes never share any. An update has one for the rounding of a
/// weight and one for that of each of its states.
enum class RandomUse : std::uint8_t {
  rounding = 1,
  initial_weights = 2,
  sampling = 3,
  data = 4,
  first_moment = 5,
  second_moment = 6,
  compensation = 7,
  conversion = 8,
  activation = 9,
  hadamard = 10,
  average = 11,       // the weight for evaluation
  weight_state = 12,  // any other state that starts at the weight
  third_moment = 13,
  fourth_moment = 14,
  fifth_moment = 15,
  sixth_moment = 16,
  dropout = 17
};

/// The random numbers of one (seed, use, name, step), by element index. philox({name, step | use << 56},
/// seed) gives the key and the upper half of the counter; the lower half counts blocks. Steps are below 2^56.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, RandomUse use, std::uint64_t name_hash, std::uint64_t step);

  /// Returns 32 random bits for element `index`: word index mod 4 of block index / 4.
  std::uint32_t bits(std::uint64_t index) const;

  /// Returns the words of block `number`.
  PhiloxBlock block(std::uint64_t number) const;

  PhiloxKey key() const { return key_; }
  std::array<std::uint32_t, 2> counter_high() const { return counter_high_; }

 private:
  PhiloxKey key_;
  std::array<std::uint32_t, 2> counter_high_;
};

/// Returns a uniform multiple of 2^-53 in [0, 1) from block `index` of the stream.
double uniform(const RandomStream& stream, std::uint64_t index);

}  // namespace mantissa
