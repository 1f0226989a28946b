#include "mantissa/text/rows/row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"

namespace mantissa::text {
namespace {

void check_ids(const std::vector<std::int32_t>& ids, std::int64_t vocabulary, bool labels,
               const std::string& where) {
  for (std::size_t t = 0; t < ids.size(); ++t) {
    if ((ids[t] >= 0 && ids[t] < vocabulary) || (labels && ids[t] == kIgnoredLabel)) continue;
    throw ConfigError("{}: {}[{}] is {}, but the model's vocab_size is {}{}", where,
                      labels ? "labels" : "ids", t, ids[t], vocabulary,
                      labels ? "; write -100 for a token that is not predicted" : "");
  }
}

void check_size(std::size_t size, std::size_t ids, const char* what, const std::string& where) {
  if (size == 0 || size == ids) return;
  throw ConfigError("{}: has {} and {} {}; give one for each id, or none", where, counted(ids, "id"), size,
                    what);
}

void check_documents(const Row& row, const std::string& where) {
  std::int64_t left = std::ssize(row.ids);
  for (const std::int64_t length : row.documents) {
    if (length < 2 || length > left)
      throw ConfigError("{}: has a document of {} where {} are left; documents have at least 2 ids", where,
                        counted(length, "id"), left);
    left -= length;
  }
  if (!row.documents.empty() && left != 0)
    throw ConfigError("{}: {} belong to no document", where, counted(left, "id"));
}

/// Returns for each id whether a document begins there, or nothing for a row of one part.
std::vector<bool> begins_of_documents(const Row& row) {
  if (row.documents.empty()) return {};
  std::vector<bool> begins(row.ids.size());
  std::size_t at = 0;
  for (const std::int64_t length : row.documents) {
    begins[at] = true;
    at += static_cast<std::size_t>(length);
  }
  return begins;
}

/// Appends the lengths of the documents' inputs.
void append_documents(const Row& row, StepData& step) {
  if (row.documents.empty() && step.documents.empty()) return;
  step.documents.resize(step.origin.size());
  if (row.documents.empty()) return;
  std::vector<std::int64_t> lengths = row.documents;
  --lengths.back();  // the last id is only predicted
  step.documents.back() = std::move(lengths);
}

}  // namespace

std::int64_t StepData::begin(std::int64_t r) const {
  return begins.empty() ? r * sequence_length : begins[static_cast<std::size_t>(r)];
}

std::int64_t StepData::longest() const {
  if (begins.empty()) return sequence_length;
  std::int64_t most = 0;
  for (std::int64_t r = 0; r < rows; ++r) most = std::max(most, length(r));
  return most;
}

std::int64_t StepData::item_row(std::int64_t item) const {
  return packs.empty() ? item : packs[static_cast<std::size_t>(item)];
}

RowTokens StepData::row(std::int64_t r) const {
  const auto first = static_cast<std::size_t>(begin(r)), count = static_cast<std::size_t>(length(r)),
             first_id = first + static_cast<std::size_t>(r);
  RowTokens row{.ids = std::span(ids).subspan(first_id, count),
                .targets = targets.empty() ? std::span(ids).subspan(first_id + 1, count)
                                           : std::span(targets).subspan(first, count),
                .sequence = sequence + static_cast<std::uint64_t>(r)};
  if (!weights.empty()) row.weights = std::span(weights).subspan(first, count);
  if (!documents.empty()) row.documents = documents[static_cast<std::size_t>(r)];
  if (carries) {
    row.position = position;
    row.slot = r;
  }
  return row;
}

std::int64_t StepData::predicted(std::int64_t first) const {
  if (targets.empty()) return begin(first);
  return std::count_if(targets.begin(), targets.begin() + begin(first),
                       [](std::int32_t target) { return target >= 0; });
}

double StepData::total_weight(std::int64_t first) const {
  const std::int64_t count = begin(first);
  if (weights.empty()) return static_cast<double>(count);
  double sum = 0;
  for (std::int64_t t = 0; t < count; ++t) sum += static_cast<double>(weights[static_cast<std::size_t>(t)]);
  return sum;
}

double StepData::weight_of(std::int64_t r) const {
  if (weights.empty()) return static_cast<double>(length(r));
  double sum = 0;
  for (const float weight : row(r).weights) sum += static_cast<double>(weight);
  return sum;
}

StepData empty_step(std::int64_t rows, std::int64_t sequence_length) {
  StepData data;
  data.rows = rows;
  data.sequence_length = sequence_length;
  data.ids.reserve(static_cast<std::size_t>(rows * (sequence_length + 1)));
  data.origin.reserve(static_cast<std::size_t>(rows));
  return data;
}

void append_row(const Row& row, std::int64_t origin, StepData& step) {
  if (step.begins.empty()) step.begins.push_back(0);
  step.ids.insert(step.ids.end(), row.ids.begin(), row.ids.end());
  const std::vector<std::int32_t>& labels = row.labels.empty() ? row.ids : row.labels;
  const std::vector<bool> begins = begins_of_documents(row);
  for (std::size_t t = 1; t < labels.size(); ++t) {
    const bool predicted = labels[t] != kIgnoredLabel && !(t < begins.size() && begins[t]);
    step.targets.push_back(predicted ? labels[t] : -1);
    step.weights.push_back(!predicted ? 0 : row.weights.empty() ? 1 : row.weights[t]);
  }
  step.begins.push_back(static_cast<std::int64_t>(step.targets.size()));
  step.origin.push_back(origin);
  append_documents(row, step);
}

void pack_rows(StepData& step) {
  step.packs = {0};
  std::int64_t room = step.sequence_length;
  for (std::int64_t r = 0; r < step.rows; ++r) {
    const std::int64_t length = step.length(r);
    if (length > room && r > step.packs.back()) {
      step.packs.push_back(r);
      room = step.sequence_length;
    }
    room -= length;
  }
  if (step.rows > 0) step.packs.push_back(step.rows);
}

void check_row(const Row& row, std::int64_t sequence_length, std::int64_t vocabulary,
               const std::string& where) {
  const auto count = static_cast<std::int64_t>(row.ids.size());
  if (count < 2 || count > sequence_length + 1) {
    throw ConfigError("{}: has {}; a row has at least 2, and at most data.sequence_length + 1 = {}", where,
                      counted(count, "id"), sequence_length + 1);
  }
  check_size(row.labels.size(), row.ids.size(), "labels", where);
  check_size(row.weights.size(), row.ids.size(), "weights", where);
  check_documents(row, where);
  check_ids(row.ids, vocabulary, false, where);
  check_ids(row.labels, vocabulary, true, where);
  for (std::size_t t = 0; t < row.weights.size(); ++t) {
    if (std::isfinite(row.weights[t]) && row.weights[t] >= 0) continue;
    throw ConfigError("{}: weights[{}] is {}; a weight is finite and at least 0", where, t, row.weights[t]);
  }
}

}  // namespace mantissa::text
