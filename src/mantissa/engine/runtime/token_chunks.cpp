#include "mantissa/engine/runtime/token_chunks.h"

#include <algorithm>

namespace mantissa::runtime {
namespace {

bool cover(std::span<const Row> rows, std::int64_t tokens) {
  std::int64_t end = 0;
  for (const Row& row : rows) {
    if (row.begin != end) return false;
    end += row.length;
  }
  return end == tokens;
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

TokenChunks::TokenChunks(const Extent& run, std::int64_t most) : run_(run) {
  if (cover(run.rows, run.tokens)) {
    run_rows_.assign(run.rows.begin(), run.rows.end());
  } else {
    run_rows_ = {{0, run.tokens}};
  }
  const auto per_leaf = static_cast<std::size_t>(std::max<std::int64_t>(1, run.rows_per_leaf));
  const auto row_begin = [&](std::size_t r) {
    return r < run_rows_.size() ? run_rows_[r].begin : run.tokens;
  };
  std::size_t whole = 0;  // first row of the whole leaves that are not in a chunk yet
  const auto flush = [&](std::size_t end) {
    if (whole < end) add(row_begin(whole), row_begin(end), whole, end);
    whole = end;
  };
  std::size_t leaves = 0;  // completed in chunks
  for (std::size_t r = 0; r < run_rows_.size(); r += per_leaf) {
    const std::size_t end = std::min(r + per_leaf, run_rows_.size());
    if (row_begin(end) - row_begin(whole) > most) flush(r);
    if (row_begin(end) - row_begin(r) <= most) continue;
    const std::size_t first = chunks_.size();
    for (std::size_t row = r; row < end; ++row) {
      const std::int64_t length = run_rows_[row].length;
      if (length == 0) continue;
      const std::int64_t equal = ceil_div(length, ceil_div(length, most));
      const std::int64_t part = ceil_div(equal, kSumBlock) * kSumBlock;
      for (std::int64_t at = 0; at < length; at += part) {
        const std::int64_t begin = row_begin(row) + at;
        add(begin, begin + std::min(part, length - at), row, row + 1);
        chunks_.back().leaf = TokenChunk::PartOfLeaf();
      }
    }
    chunks_[first].leaf->opens = chunks_.back().leaf->closes = true;
    whole = end;
  }
  flush(run_rows_.size());
  if (chunks_.empty()) add(0, run.tokens, 0, run_rows_.size());
  for (TokenChunk& chunk : chunks_) {
    chunk.after_leaf = leaves > 0;
    if (!chunk.leaf || chunk.leaf->closes) ++leaves;
  }
  chunks_.back().last = true;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    chunks_[i].extent.rows = rows_[i];
    chunks_[i].extent.segments = segments_[i];
  }
}

void TokenChunks::add(std::int64_t begin, std::int64_t end, std::size_t first_row, std::size_t last_row) {
  TokenChunk chunk;
  chunk.first_token = begin;
  chunk.extent = run_;
  chunk.extent.tokens = end - begin;
  chunk.extent.first_row = run_.first_row + static_cast<std::int64_t>(first_row);
  std::vector<Row> rows;
  for (std::size_t r = first_row; r < last_row; ++r) {
    const Row& row = run_rows_[r];
    const std::int64_t from = std::max(row.begin, begin), to = std::min(row.begin + row.length, end);
    rows.push_back({from - begin, to - from});
  }
  std::vector<Segment> segments;
  for (const Segment& s : run_.segments) {
    const std::int64_t from = std::max(s.begin, begin), to = std::min(s.begin + s.length, end);
    if (from >= to) continue;
    Segment part = s;
    part.begin = from - begin;
    part.length = to - from;
    part.position += from - s.begin;
    segments.push_back(part);
  }
  chunks_.push_back(std::move(chunk));
  rows_.push_back(std::move(rows));
  segments_.push_back(std::move(segments));
}

}  // namespace mantissa::runtime
