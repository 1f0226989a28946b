#include "mantissa/kernels/interleave.h"

#include <algorithm>
#include <cstring>

#include "mantissa/kernels/context.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/interleave.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Writes one group of `count` rows, which are `stride` bytes apart and have `bytes` bytes each.
void Interleave(const std::uint8_t* from, std::size_t stride, std::size_t count, std::size_t bytes,
                std::uint32_t* to) {
  constexpr auto kRows = static_cast<std::size_t>(kInterleaved);
  const hn::ScalableTag<std::uint32_t> d;
  using D = decltype(d);
  constexpr std::size_t kLanes = HWY_LANES(std::uint32_t), kPiece = 16;
  std::size_t at = 0;
  if (count == kRows) {
    for (; at + kPiece <= bytes; at += kPiece) {
      for (std::size_t row = 0; row < kRows; row += kLanes) {
        TransposePieces(
            d,
            [&](std::size_t r)
                HWY_ATTR { return reinterpret_cast<const std::uint32_t*>(from + (row + r) * stride + at); },
            0,
            [&](std::size_t word, hn::Vec<D> v)
                HWY_ATTR { hn::Stream(v, d, to + (at / 4 + word) * kRows + row); });
      }
    }
  }
  for (; at < bytes; at += 4) {
    for (std::size_t r = 0; r < kRows; ++r) {
      std::uint32_t word = 0;
      if (r < count) std::memcpy(&word, from + r * stride + at, std::min<std::size_t>(4, bytes - at));
      to[at / 4 * kRows + r] = word;
    }
  }
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {
HWY_EXPORT(Interleave);
}  // namespace

void interleave(const Context& ctx, std::int64_t rows, std::int64_t width, const ConstMatrix& from,
                std::byte* to) {
  const std::size_t size = bytes_of(from.type), stride = static_cast<std::size_t>(from.ld) * size;
  const std::size_t group = interleaved_bytes(kInterleaved, width, from.type);
  const auto* first = static_cast<const std::uint8_t*>(from.data);
  parallel_for(ctx, (rows + kInterleaved - 1) / kInterleaved, [&](std::int64_t i, int) {
    const std::int64_t row = i * kInterleaved;
    HWY_DISPATCH_TABLE(Interleave)
    [ctx.target()](first + static_cast<std::size_t>(row) * stride, stride,
                   static_cast<std::size_t>(std::min(kInterleaved, rows - row)),
                   static_cast<std::size_t>(width) * size,
                   reinterpret_cast<std::uint32_t*>(to + static_cast<std::size_t>(i) * group));
  });
}

void interleave(const Context& ctx, std::int64_t rows, std::int64_t width, QuantFormat format,
                const std::byte* from, std::byte* to) {
  constexpr auto kRows = static_cast<std::size_t>(kInterleaved);
  const QuantTraits t = traits(format);
  const std::size_t blocks = static_cast<std::size_t>(width) / kQuantBlock, row_bytes = blocks * t.bytes;
  parallel_for(ctx, (rows + kInterleaved - 1) / kInterleaved, [&](std::int64_t i, int) {
    const std::int64_t row = i * kInterleaved;
    const auto count = static_cast<std::size_t>(std::min(kInterleaved, rows - row));
    const std::byte* first = from + static_cast<std::size_t>(row) * row_bytes;
    std::byte* out = to + static_cast<std::size_t>(i) * kRows * interleaved_row_bytes(width, format);
    // Writes the bytes from byte `at` of a block of every row to the places that are a word apart.
    const auto put = [&](std::size_t block, std::size_t at, std::size_t bytes, std::byte* word) {
      for (std::size_t r = 0; r < kRows; ++r, word += 4) {
        if (r < count && block < blocks) {
          std::memcpy(word, first + r * row_bytes + block * t.bytes + at, bytes);
        } else {
          std::memset(word, 0, bytes);
        }
      }
    };
    for (std::size_t b = 0; b < blocks; b += 2) {
      if (t.minimum) {
        for (std::size_t j = 0; j < 2; ++j, out += 4 * kRows) put(b + j, 0, 4, out);
      } else {
        for (std::size_t j = 0; j < 2; ++j) put(b + j, 0, 2, out + 2 * j);
        out += 4 * kRows;
      }
      for (std::size_t j = 0; j < 2; ++j) {
        const std::size_t words = interleaved_fifth_words(format) + interleaved_code_words(format);
        const std::size_t begin = t.codes - 4 * interleaved_fifth_words(format);
        for (std::size_t w = 0; w < words; ++w, out += 4 * kRows) put(b + j, begin + 4 * w, 4, out);
      }
    }
  });
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
