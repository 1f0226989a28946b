#include "mantissa/engine/runtime/batch.h"

#include <algorithm>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/tensor/row_blocks.h"

namespace mantissa::runtime {

Batch::Batch(std::int64_t rows_per_leaf, std::uint64_t seed) : rows_per_leaf_(rows_per_leaf), seed_(seed) {}

void Batch::clear() {
  rows_.clear();
  segments_.clear();
  ids_.clear();
  targets_.clear();
  weights_.clear();
}

namespace {

std::int64_t length_of(const RowTokens& row) {
  return static_cast<std::int64_t>(row.ids.size());
}

std::vector<std::int64_t> documents_of(const RowTokens& row) {
  if (row.documents.empty()) return {length_of(row)};
  return {row.documents.begin(), row.documents.end()};
}

/// Throws ShapeError if the row is empty or its parts do not fit together.
void check_row(const RowTokens& row) {
  const std::int64_t length = length_of(row);
  if (length == 0 || row.targets.size() != row.ids.size() ||
      (!row.weights.empty() && row.weights.size() != row.ids.size())) {
    throw ShapeError("a row of a batch has {} ids, {} targets and {} weights", row.ids.size(),
                     row.targets.size(), row.weights.size());
  }
  std::int64_t end = 0;
  for (const std::int64_t n : documents_of(row)) {
    if (n <= 0 || n > length - end)
      throw ShapeError("a row of {} tokens has a document of {} at token {}", length, n, end);
    end += n;
  }
  if (end != length) throw ShapeError("the documents of a row of {} tokens have {} tokens", length, end);
}

}  // namespace

void Batch::add(const RowTokens& row) {
  check_row(row);
  rows_.push_back({tokens(), length_of(row)});
  append(row, 0, length_of(row), row.slot >= 0 ? row.slot : rows() - 1);
}

void Batch::add_part(const RowTokens& row, int part, int parts) {
  check_row(row);
  const std::int64_t length = shared_length(length_of(row), parts);
  const TokenRange early = block_of(length, part, 2 * parts),
                   late = block_of(length, 2 * parts - 1 - part, 2 * parts);
  rows_.push_back({tokens(), early.count() + late.count()});
  for (const TokenRange& block : {early, late})
    append(row, block.begin, block.end, row.slot >= 0 ? row.slot : rows() - 1);
}

void Batch::append(const RowTokens& row, std::int64_t first, std::int64_t end, std::int64_t slot) {
  const std::int64_t at = tokens() - first;  // of the row's first token
  std::int64_t begin = 0;
  std::vector<std::int64_t> documents = documents_of(row);
  documents.back() += std::max<std::int64_t>(end - length_of(row), 0);  // padding
  for (const std::int64_t n : documents) {
    const std::int64_t from = std::max(begin, first), to = std::min(begin + n, end);
    // Random numbers are keyed by (sequence, position), so each document needs its own sequence number.
    const auto document = static_cast<std::uint64_t>(begin) << 32U;
    if (from < to) {
      const std::int64_t position = from - begin + (begin == 0 ? row.position : 0);
      segments_.push_back({at + from, to - from, position, slot, row.sequence + document});
    }
    begin += n;
  }
  for (auto t = static_cast<std::size_t>(first); t < static_cast<std::size_t>(end); ++t) {
    if (t >= row.ids.size()) {
      ids_.push_back(0);
      targets_.push_back(-1);
      weights_.push_back(0);
      continue;
    }
    ids_.push_back(row.ids[t]);
    targets_.push_back(row.targets[t]);
    const float weight = row.weights.empty() ? 1 : row.weights[t];
    weights_.push_back(row.targets[t] < 0 ? 0 : weight);
  }
}

Extent Batch::extent() const {
  return {tokens(), rows_, segments_, rows_per_leaf_, seed_};
}

}  // namespace mantissa::runtime
