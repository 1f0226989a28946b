// Rows selected by index: embeddings and their gradient, and the rows whose logits are requested.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/core/numeric/quants.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::kernels {

/// y[i] = table[ids[i]], converted exactly or rounded once. table: [entries, width]; y: [count, width]; ids
/// in [0, entries).
///
/// With `quants` the table's rows are quantized blocks with their scales, and width is a multiple of 32.
/// Values are dequantized to f32 and rounded to table.type before they are rounded to y.type. Throws
/// DtypeError for a format whose scales lie apart.
void gather(const Context& ctx, std::int64_t count, std::int64_t width, ConstMatrix table,
            const std::int32_t* ids, Matrix y, std::optional<QuantFormat> quants = {});

/// The gradient of row selection: dx[ids[i]] = Σ dy[i] over the i with that id, in ascending order; rows
/// without any are zero. Sums are f32 (f64 if dx is f64) and round once to dx.type. dx: [entries, width]; dy:
/// [count, width].
void scatter_rows(const Context& ctx, std::int64_t count, std::int64_t width, const std::int32_t* ids,
                  ConstMatrix dy, std::int64_t entries, Matrix dx);

/// dtable[v] += Σ_{t: ids[t] = v} dy[t]: one chain from zero per block of 256 tokens, blocks into leaves,
/// leaves into dtable. dtable: [entries, width], f32 (f64 in f64). Without `accumulate` it is zeroed first;
/// otherwise only rows that occur are changed. A dtable in a narrower format receives the f32 sums rounded
/// once, as if a whole table of sums were added; hence −0 in rows that do not occur becomes +0. Needs
/// gather_workspace() bytes.
///
/// With `apart` the sum is computed separately from dtable, rounded to dtable's format, which may be any
/// format, and added once. dtable then has the bytes of dtable + s, where s is a table of that format summed
/// without `accumulate`.
struct GatherBackward {
  std::int64_t entries = 0;
  std::int64_t width = 0;
  const std::int32_t* ids = nullptr;
  ConstMatrix dy;
  Matrix dtable;
  bool accumulate = false;
  bool apart = false;
  std::int64_t padding_id = -1;    // tokens with this id add nothing; -1: none
  RangeCounter* losses = nullptr;  // if set, counts what the rounding of sums to dtable's format loses
};
std::size_t gather_workspace(const Context& ctx, std::int64_t tokens, std::int64_t width);
void gather_backward(const Context& ctx, const Extent& extent, const GatherBackward& g);

}  // namespace mantissa::kernels
