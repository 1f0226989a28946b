#include "mantissa/engine/runtime/batch.h"

#include "mantissa/core/base/error_text.h"

namespace mantissa::runtime {

Batch::Batch(std::int64_t rows_per_leaf, std::uint64_t seed) : rows_per_leaf_(rows_per_leaf), seed_(seed) {}

void Batch::clear() {
  rows_.clear();
  segments_.clear();
  ids_.clear();
  targets_.clear();
  weights_.clear();
}

void Batch::add(const RowTokens& row) {
  const std::int64_t begin = tokens(), length = static_cast<std::int64_t>(row.ids.size());
  if (length == 0 || row.targets.size() != row.ids.size() ||
      (!row.weights.empty() && row.weights.size() != row.ids.size())) {
    throw ShapeError("a row of a batch has {} ids, {} targets and {} weights", row.ids.size(),
                     row.targets.size(), row.weights.size());
  }
  const std::span<const std::int64_t> documents =
      row.documents.empty() ? std::span(&length, 1) : row.documents;
  std::int64_t end = 0;
  for (const std::int64_t n : documents) {
    if (n <= 0 || n > length - end)
      throw ShapeError("a row of {} tokens has a document of {} at token {}", length, n, end);
    end += n;
  }
  if (end != length) throw ShapeError("the documents of a row of {} tokens have {} tokens", length, end);
  rows_.push_back({begin, length});
  const std::int64_t slot = row.slot >= 0 ? row.slot : rows() - 1;
  std::int64_t at = begin;
  for (const std::int64_t n : documents) {
    // Random numbers are keyed by (sequence, position), so each document needs its own sequence number.
    const auto document = static_cast<std::uint64_t>(at - begin) << 32U;
    segments_.push_back({at, n, at == begin ? row.position : 0, slot, row.sequence + document});
    at += n;
  }
  ids_.insert(ids_.end(), row.ids.begin(), row.ids.end());
  targets_.insert(targets_.end(), row.targets.begin(), row.targets.end());
  for (std::size_t t = 0; t < row.ids.size(); ++t) {
    const float weight = row.weights.empty() ? 1 : row.weights[t];
    weights_.push_back(row.targets[t] < 0 ? 0 : weight);
  }
}

Extent Batch::extent() const {
  return {tokens(), rows_, segments_, rows_per_leaf_, seed_};
}

}  // namespace mantissa::runtime
