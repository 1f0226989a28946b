// What tests leave out under the sanitizers.
#pragma once

#include <vector>

namespace mantissa::testing {

/// True under the sanitizers, which run a test ten times slower and need each path once: the release tests
/// compare bits in all cases, these in some.
#ifdef MANTISSA_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Returns all cases, or the first `few` of them under the sanitizers.
template <class T>
std::vector<T> cases(std::vector<T> all, std::size_t few) {
  if (kSanitized && few < all.size()) all.resize(few, all.front());
  return all;
}

/// Returns the numbers of threads under which tests compare bits.
inline std::vector<int> thread_counts() {
  return cases<int>({5, 1, 2}, 1);
}

}  // namespace mantissa::testing
