// RWKV-LM's order of rows: a walk by cubes modulo a prime, which it calls magic_prime.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::text {

/// Sample s (from 0) is row ⌊P·(√5 − 1)/2⌋·(s + 1)³ mod P. If P is a prime of the form 3n + 2, cubing
/// permutes the numbers below P, so P samples use each of the rows 0 … P − 1 once. Later samples repeat the
/// walk.
class RwkvWalk {
 public:
  RwkvWalk() = default;
  /// 2 ≤ `prime` < 2^63.
  explicit RwkvWalk(std::int64_t prime);

  std::int64_t prime() const { return prime_; }
  /// Returns the row of a sample ≥ 0.
  std::int64_t row(std::int64_t sample) const;

 private:
  std::int64_t prime_ = 2, factor_ = 1;
};

bool is_prime(std::int64_t n);

/// Returns the largest prime of the form 3n + 2 below `rows`, or 0. With rows = ⌊(tokens − 1) / T⌋ it is the
/// largest below tokens / T − 1, as RWKV-LM recommends.
std::int64_t magic_prime_below(std::int64_t rows);

/// Returns why `prime` is not one that RWKV-LM accepts for `rows` rows (a prime of the form 3n + 2, above 0.9
/// of the rows and not above them), or "".
std::string magic_prime_fault(std::int64_t prime, std::int64_t rows);

}  // namespace mantissa::text
