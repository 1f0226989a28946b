// Dropout of attention's probabilities, in tiles of scores [keys][queries].
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/stochastic-inl.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/attention/scores-inl.h"
#include "mantissa/kernels/dropout.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

using mantissa::HWY_NAMESPACE::RandomRow;

/// The pairs of a tile that are kept: a word for each key of a block, with a bit for each query of the tile.
struct KeptPairs {
  std::uint32_t of_key[kKeyBlock];
};
static_assert(kWidestTile <= 32);

/// Which pairs of a segment's queries and keys are dropped. Positions count from the first key.
template <class T>
class PairDropout {
 public:
  PairDropout(const Dropout& how, const AttentionShape& shape, const Segment& segment, const Keys& keys)
      : rate_(how.rate),
        threshold_(how.threshold()),
        factor_(static_cast<T>(how.factor())),
        heads_(static_cast<std::uint64_t>(shape.heads)),
        first_key_(static_cast<std::uint64_t>(segment.position) - keys.position),
        stream_(how.seed, RandomUse::dropout, how.name, segment.sequence) {}

  bool Drops() const { return rate_ > 0; }

  /// Forgets all pairs of `keys`, rows of a key block.
  static void Start(KeptPairs& kept, Range keys) {
    std::fill(kept.of_key + keys.begin, kept.of_key + keys.end, 0U);
  }

  /// Adds the pairs of `head`'s query at position `query`, number `bit` of the tile, with rows `keys` of the
  /// key block that starts at position `key`.
  void AddQuery(KeptPairs& kept, std::size_t bit, std::size_t query, std::size_t head, std::size_t key,
                Range keys) const {
    constexpr unsigned kKeyBits = 28;  // of a key's position
    std::uint32_t random[kKeyBlock];
    const std::uint64_t row = ((first_key_ + query) * heads_ + head) << kKeyBits;
    RandomRow(stream_, row + first_key_ + key + keys.begin, keys.count(), random);
    for (std::size_t j = 0; j < keys.count(); ++j)
      kept.of_key[keys.begin + j] |= static_cast<std::uint32_t>(random[j] >= threshold_) << bit;
  }

  /// Multiplies the kept values of `keys` and `width` queries by the factor, and drops the others. Row j of
  /// the tile begins at values[j · stride].
  void Apply(const KeptPairs& kept, Range keys, std::size_t width, T* values, std::size_t stride) const {
    const hn::ScalableTag<T> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto factor = hn::Set(d, factor_);
    const auto one = hn::Set(du, 1);
    for (std::size_t j = keys.begin; j < keys.end; ++j) {
      for (std::size_t i = 0; i < width; i += hn::Lanes(d)) {
        const auto word = hn::Set(du, kept.of_key[j] >> i);
        const auto bit = hn::And(hn::Shr(word, hn::Iota(du, 0)), one);
        T* at = values + j * stride + i;
        const auto dropped = hn::RebindMask(d, hn::Eq(bit, hn::Zero(du)));
        hn::StoreU(hn::IfThenZeroElse(dropped, hn::Mul(hn::LoadU(d, at), factor)), d, at);
      }
    }
  }

 private:
  double rate_;
  std::uint32_t threshold_;
  T factor_;
  std::uint64_t heads_, first_key_;  // the position of the first key in the sequence
  RandomStream stream_;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_DROPOUT_INL_H_
