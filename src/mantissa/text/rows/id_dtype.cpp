#include "mantissa/text/rows/id_dtype.h"

#include <cmath>
#include <cstring>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::text {
namespace {

/// True if all values of `begin`, read as `format`, are ids.
bool are_ids(std::span<const std::byte> begin, Scalar format, std::int64_t vocabulary) {
  const std::size_t width = bytes_of(format), count = begin.size() / width;
  const std::size_t fewest = width == 2 ? 32 : 16;  // enough to rule out coincidence
  if (count < fewest) return false;
  bool any = false;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, begin.data() + i * width, width);
    const double value = decode(bits, format);
    if (!(value >= 0 && value < static_cast<double>(vocabulary)) || value != std::floor(value)) return false;
    any = any || value > 0;
  }
  return any;
}

}  // namespace

std::optional<std::string_view> stranger_among_ids(std::span<const std::byte> begin,
                                                   std::int64_t vocabulary) {
  constexpr std::string_view kNumpy = "\x93NUMPY";
  if (begin.size() >= kNumpy.size() && std::memcmp(begin.data(), kNumpy.data(), kNumpy.size()) == 0)
    return ".npy";
  for (const Scalar format : {Scalar::f64, Scalar::f32, Scalar::f16, Scalar::bf16}) {
    if (are_ids(begin, format, vocabulary)) return name(format);
  }
  return std::nullopt;
}

}  // namespace mantissa::text
