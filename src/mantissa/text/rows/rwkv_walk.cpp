#include "mantissa/text/rows/rwkv_walk.h"

#include <fmt/format.h>

#include <cmath>

namespace mantissa::text {
namespace {

__extension__ using u128 = unsigned __int128;

/// Returns a·b mod m. All are below 2^63, so the product needs 126 bits.
std::uint64_t product(std::uint64_t a, std::uint64_t b, std::uint64_t m) {
  return static_cast<std::uint64_t>(static_cast<u128>(a) * b % m);
}

std::uint64_t power(std::uint64_t base, std::uint64_t exponent, std::uint64_t m) {
  std::uint64_t result = 1 % m;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result = product(result, base, m);
    base = product(base, base, m);
  }
  return result;
}

}  // namespace

RwkvWalk::RwkvWalk(std::int64_t prime)
    : prime_(prime),
      // In f64, as RWKV-LM computes it: from about 2^52 on this is not the floor of the exact product.
      factor_(static_cast<std::int64_t>(static_cast<double>(prime) * ((std::sqrt(5.0) - 1) / 2))) {}

std::int64_t RwkvWalk::row(std::int64_t sample) const {
  const auto m = static_cast<std::uint64_t>(prime_);
  const std::uint64_t i = (static_cast<std::uint64_t>(sample) + 1) % m;
  const std::uint64_t cube = product(product(i, i, m), i, m);
  return static_cast<std::int64_t>(product(static_cast<std::uint64_t>(factor_) % m, cube, m));
}

bool is_prime(std::int64_t n) {
  // Miller–Rabin with the first twelve primes as bases decides every number below 3.3·10^24 (Sorenson and
  // Webster, "Strong pseudoprimes to twelve prime bases", 2015).
  constexpr std::int64_t kBases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (n < 2) return false;
  for (const std::int64_t p : kBases) {
    if (n % p == 0) return n == p;
  }
  const auto m = static_cast<std::uint64_t>(n);
  std::uint64_t odd = m - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const std::int64_t base : kBases) {
    std::uint64_t x = power(static_cast<std::uint64_t>(base), odd, m);
    if (x == 1 || x == m - 1) continue;
    bool composite = true;
    for (int r = 1; r < twos && composite; ++r) {
      x = product(x, x, m);
      composite = x != m - 1;
    }
    if (composite) return false;
  }
  return true;
}

std::int64_t magic_prime_below(std::int64_t rows) {
  for (std::int64_t n = rows - 1; n >= 2; --n) {
    if (n % 3 == 2 && is_prime(n)) return n;
  }
  return 0;
}

std::string magic_prime_fault(std::int64_t prime, std::int64_t rows) {
  if (prime > rows || !(static_cast<double>(prime) > 0.9 * static_cast<double>(rows)))
    return fmt::format("the data have {} rows", rows);
  if (prime % 3 != 2) return fmt::format("it is {} mod 3, not 2", prime % 3);
  if (!is_prime(prime)) return "it is not a prime";
  return "";
}

}  // namespace mantissa::text
