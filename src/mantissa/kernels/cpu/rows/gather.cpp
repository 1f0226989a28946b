#include "mantissa/kernels/gather.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/gather.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/quants-inl.h"
#include "mantissa/kernels/cpu/head/loss_count-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

template <class T>
void ConvertRow(ConstMatrix from, std::size_t from_row, Matrix to, std::size_t to_row, std::size_t width) {
  alignas(64) T buffer[kPiece];
  for (std::size_t c = 0; c < width; c += kPiece) {
    const std::size_t n = std::min(kPiece, width - c);
    const T* row =
        ViewRow<T>(from.data, from.type, from_row * static_cast<std::size_t>(from.ld) + c, n, buffer);
    StoreRow(row, n, to.data, to.type, to_row * static_cast<std::size_t>(to.ld) + c);
  }
}

void GatherRow(ConstMatrix table, std::size_t entry, Matrix y, std::size_t i, std::size_t width) {
  table.type == Scalar::f64 || y.type == Scalar::f64 ? ConvertRow<double>(table, entry, y, i, width)
                                                     : ConvertRow<float>(table, entry, y, i, width);
}

/// Row `entry` of a table in quantized blocks.
void GatherQuants(QuantFormat quants, ConstMatrix table, std::size_t entry, Matrix y, std::size_t i,
                  std::size_t width) {
  alignas(64) float buffer[kPiece];
  const QuantRows rows(quants, static_cast<std::size_t>(table.ld), table.data, nullptr);
  for (std::size_t c = 0; c < width; c += kPiece) {
    const std::size_t n = std::min(kPiece, width - c);
    mantissa::HWY_NAMESPACE::DequantizeRow(rows, entry, c, n, buffer);
    if (!holds(table.type, Scalar::f32)) RoundRow(buffer, n, table.type);
    StoreRow(buffer, n, y.data, y.type, i * static_cast<std::size_t>(y.ld) + c);
  }
}

/// Returns the row that contains token t, at or after `row`.
const Row* RowOf(const Row* row, const Row* end, std::int64_t t) {
  return std::upper_bound(row, end, t,
                          [](std::int64_t token, const Row& r) { return token < r.begin + r.length; });
}

/// to[place …] += `sum`, after rounding `sum` to to's format.
template <class T>
void AddRounded(const T* sum, std::size_t n, Matrix to, std::size_t place) {
  alignas(64) std::byte narrow[kPiece * sizeof(T)];
  alignas(64) T rounded[kPiece], row[kPiece];
  StoreRow(sum, n, narrow, to.type, 0);
  LoadRow(narrow, to.type, 0, n, rounded);
  LoadRow(to.data, to.type, place, n, row);
  AddRow(rounded, n, row);
  StoreRow(row, n, to.data, to.type, place);
}

/// Adds +0 to every element. Writes only if there is a −0, which is rare.
template <class T>
void AddZeroPiece(Matrix table, std::size_t place, std::size_t n) {
  alignas(64) T buffer[kPiece], sum[kPiece];
  const T* row = ViewRow<T>(table.data, table.type, place, n, buffer);
  bool differs = false;
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> bits;
    const auto x = hn::LoadU(d, row + i), y = hn::Add(x, hn::Zero(d));
    differs = differs || !hn::AllTrue(bits, hn::Eq(hn::BitCast(bits, x), hn::BitCast(bits, y)));
    hn::StoreU(y, d, sum + i);
  });
  if (differs) StoreRow(sum, n, table.data, table.type, place);
}

/// Counts what rounding sums[0, n) to `type` loses.
template <class T>
void CountRounding(const T* sums, std::size_t n, Scalar type, RangeCounter& losses) {
  alignas(64) std::byte stored[kPiece * sizeof(T)];
  alignas(64) T after[kPiece];
  StoreRow(sums, n, stored, type, 0);
  LoadRow(stored, type, 0, n, after);
  losses.add(CountRange(sums, after, n, type));
}

/// Adds the rows of dy at `tokens` (ascending) to dtable[entry, c … c + width): a chain per block, blocks
/// into leaves, leaves into the table. Blocks and leaves without a token of this entry would only add zeros.
template <class T>
void SumEntry(const Extent& extent, const GatherBackward& g, std::size_t entry, const std::uint64_t* tokens,
              std::size_t count, std::size_t c, std::size_t width) {
  alignas(64) T chain[kPiece], leaf[kPiece], buffer[kPiece], micro[kPiece];
  const std::size_t at = entry * static_cast<std::size_t>(g.dtable.ld) + c;
  const bool direct = !g.apart && IsStoredAs<T>(g.dtable.type);
  T* sum = direct ? static_cast<T*>(g.dtable.data) + at : micro;
  if (!direct) std::fill_n(micro, width, T{0});
  const Row* const rows = extent.rows.data();
  const Row* const rows_end = rows + extent.rows.size();
  const Row* row = rows;
  std::int64_t open_leaf = -1, open_block_end = -1;
  std::fill_n(chain, width, T{0});
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t t = tokens[k] & 0xffffffffU;
    const std::int64_t token = static_cast<std::int64_t>(t);
    if (token >= open_block_end) {
      row = RowOf(row, rows_end, token);
      const std::int64_t block = (token - row->begin) / kSumBlock;
      open_block_end = std::min(row->begin + (block + 1) * kSumBlock, row->begin + row->length);
      const std::int64_t leaf_index = (row - rows) / extent.rows_per_leaf;
      if (k > 0) AddRow(chain, width, leaf);
      if (k > 0 && leaf_index != open_leaf) AddRow(leaf, width, sum);
      if (leaf_index != open_leaf) std::fill_n(leaf, width, T{0});
      open_leaf = leaf_index;
      std::fill_n(chain, width, T{0});
    }
    AddRow(ViewRow<T>(g.dy.data, g.dy.type, t * static_cast<std::size_t>(g.dy.ld) + c, width, buffer), width,
           chain);
  }
  AddRow(chain, width, leaf);
  AddRow(leaf, width, sum);
  if (direct) return;
  if (g.apart) {
    if (g.losses != nullptr) CountRounding(micro, width, g.dtable.type, *g.losses);
    return AddRounded(micro, width, g.dtable, at);
  }
  if (g.accumulate) {
    LoadRow(g.dtable.data, g.dtable.type, at, width, buffer);
    AddRow(buffer, width, micro);
  }
  if (g.losses != nullptr) CountRounding(micro, width, g.dtable.type, *g.losses);
  StoreRow(micro, width, g.dtable.data, g.dtable.type, at);
}

/// Adds +0 to row `entry`, which turns −0 into +0 if nothing else is added.
void AddZero(Matrix table, std::size_t entry, std::size_t width) {
  for (std::size_t c = 0; c < width; c += kPiece) {
    const std::size_t n = std::min(kPiece, width - c), place = entry * static_cast<std::size_t>(table.ld) + c;
    table.type == Scalar::f64 ? AddZeroPiece<double>(table, place, n) : AddZeroPiece<float>(table, place, n);
  }
}

/// Sums channels [c, c + width) of the entries whose tokens start in [begin, end) of `sorted`, pairs (entry,
/// token).
void SumEntries(const Extent& extent, const GatherBackward& g, const std::uint64_t* sorted,
                std::size_t tokens, std::size_t begin, std::size_t end, std::size_t c, std::size_t width) {
  const auto entry = [&](std::size_t i) { return static_cast<std::size_t>(sorted[i] >> 32); };
  std::size_t first = begin;
  while (first > 0 && first < end && entry(first) == entry(first - 1)) ++first;
  while (first < end) {
    std::size_t last = first + 1;
    while (last < tokens && entry(last) == entry(first)) ++last;
    g.dtable.type == Scalar::f64
        ? SumEntry<double>(extent, g, entry(first), sorted + first, last - first, c, width)
        : SumEntry<float>(extent, g, entry(first), sorted + first, last - first, c, width);
    first = last;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(GatherRow);
HWY_EXPORT(GatherQuants);
HWY_EXPORT(SumEntries);
HWY_EXPORT(AddZero);

namespace {

// Tokens and channels of one task of the gradient.
constexpr std::int64_t kTokens = 64;
constexpr std::int64_t kChannels = 1024;

void zero_table(const Context& ctx, const GatherBackward& g) {
  for_row_ranges(ctx, g.entries, g.width, [&](std::size_t begin, std::size_t end) {
    const std::size_t bytes = bytes_of(g.dtable.type);
    for (std::size_t v = begin; v < end; ++v) {
      std::memset(static_cast<std::byte*>(g.dtable.data) + v * static_cast<std::size_t>(g.dtable.ld) * bytes,
                  0, static_cast<std::size_t>(g.width) * bytes);
    }
  });
}

}  // namespace

void gather(const Context& ctx, std::int64_t count, std::int64_t width, ConstMatrix table,
            const std::int32_t* ids, Matrix y, std::optional<QuantFormat> quants) {
  if (quants && traits(*quants).apart) {
    throw DtypeError("gather: tables are not read in {}, whose scales lie apart", traits(*quants).name);
  }
  const auto convert = HWY_DISPATCH_TABLE(GatherRow)[ctx.target()];
  const auto dequantize = HWY_DISPATCH_TABLE(GatherQuants)[ctx.target()];
  for_row_ranges(ctx, count, width, [&](std::size_t begin, std::size_t end) {
    const std::size_t bytes = bytes_of(y.type), row_bytes = static_cast<std::size_t>(width) * bytes;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t entry = static_cast<std::size_t>(ids[i]);
      if (quants) {
        dequantize(*quants, table, entry, y, i, static_cast<std::size_t>(width));
      } else if (table.type != y.type) {
        convert(table, entry, y, i, static_cast<std::size_t>(width));
      } else {
        std::memcpy(
            static_cast<std::byte*>(y.data) + i * static_cast<std::size_t>(y.ld) * bytes,
            static_cast<const std::byte*>(table.data) + entry * static_cast<std::size_t>(table.ld) * bytes,
            row_bytes);
      }
    }
  });
}

namespace {

/// sum += row `row` of dy, in T. The double sum of two values of T, rounded once, equals their sum in T.
template <class T>
void add_row(const ConstMatrix& dy, std::int64_t row, std::vector<double>& part, std::vector<double>& sum) {
  load_row(dy.data, dy.type, static_cast<std::size_t>(row * dy.ld), part.size(), part.data());
  for (std::size_t c = 0; c < sum.size(); ++c) sum[c] = static_cast<double>(static_cast<T>(sum[c] + part[c]));
}

}  // namespace

void scatter_rows(const Context& ctx, std::int64_t count, std::int64_t width, const std::int32_t* ids,
                  ConstMatrix dy, std::int64_t entries, Matrix dx) {
  const std::size_t row_bytes = static_cast<std::size_t>(width) * bytes_of(dx.type);
  for_row_ranges(ctx, entries, width, [&](std::size_t begin, std::size_t end) {
    std::memset(static_cast<std::byte*>(dx.data) + begin * row_bytes, 0, (end - begin) * row_bytes);
  });
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
  std::vector<double> part(static_cast<std::size_t>(width)), sum;
  const auto add = dx.type == Scalar::f64 ? add_row<double> : add_row<float>;
  for (std::size_t i = 0; i < order.size();) {
    const std::int32_t id = ids[order[i]];
    sum.assign(part.size(), 0.0);
    for (; i < order.size() && ids[order[i]] == id; ++i) add(dy, order[i], part, sum);
    store_row(sum.data(), sum.size(), dx.data, dx.type, static_cast<std::size_t>(id) * sum.size());
  }
}

std::size_t gather_workspace(const Context&, std::int64_t tokens, std::int64_t) {
  return aligned(static_cast<std::size_t>(tokens) * sizeof(std::uint64_t));
}

void gather_backward(const Context& ctx, const Extent& extent, const GatherBackward& g) {
  const auto add_zero = HWY_DISPATCH_TABLE(AddZero)[ctx.target()];
  if (!g.accumulate && !g.apart) {
    zero_table(ctx, g);
  } else if (!g.apart && !holds(g.dtable.type, Scalar::f32)) {
    for_row_ranges(ctx, g.entries, g.width, [&](std::size_t begin, std::size_t end) {
      for (std::size_t v = begin; v < end; ++v) add_zero(g.dtable, v, static_cast<std::size_t>(g.width));
    });
  }
  // Tokens sorted by entry, and in order within an entry.
  std::uint64_t* sorted = reinterpret_cast<std::uint64_t*>(ctx.workspace);
  std::int64_t tokens = 0;
  for (std::int64_t t = 0; t < extent.tokens; ++t) {
    if (g.ids[t] == g.padding_id) continue;
    sorted[tokens++] = static_cast<std::uint64_t>(g.ids[t]) << 32 | static_cast<std::uint64_t>(t);
  }
  std::sort(sorted, sorted + tokens);
  const auto sum = HWY_DISPATCH_TABLE(SumEntries)[ctx.target()];
  const std::int64_t pieces = (g.width + kChannels - 1) / kChannels;
  const std::int64_t ranges = (tokens + kTokens - 1) / kTokens;
  parallel_for(ctx, ranges * pieces, [&](std::int64_t task, int) {
    const std::int64_t begin = task / pieces * kTokens, c = task % pieces * kChannels;
    sum(extent, g, sorted, static_cast<std::size_t>(tokens), static_cast<std::size_t>(begin),
        static_cast<std::size_t>(std::min(tokens, begin + kTokens)), static_cast<std::size_t>(c),
        static_cast<std::size_t>(std::min(kChannels, g.width - c)));
  });
  if (!g.apart) return;
  for_row_ranges(ctx, g.entries, g.width, [&](std::size_t first, std::size_t end) {
    const std::uint64_t* next = std::lower_bound(sorted, sorted + tokens, first << 32);
    for (std::size_t v = first; v < end; ++v) {
      const std::uint64_t* after = std::find_if(next, static_cast<const std::uint64_t*>(sorted) + tokens,
                                                [&](std::uint64_t pair) { return pair >> 32 != v; });
      if (after == next) add_zero(g.dtable, v, static_cast<std::size_t>(g.width));
      next = after;
    }
  });
}

}  // namespace mantissa::kernels
#endif
