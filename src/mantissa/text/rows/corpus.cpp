#include "mantissa/text/rows/corpus.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace mantissa::text {

Corpus::Corpus(std::vector<std::int32_t> ids) : memory_(std::move(ids)), tokens_(std::ssize(memory_)) {
  if (tokens_ == 0) return;
  stretches_.push_back({});
  documents_.push_back(0);
}

void Corpus::begin_document() {
  if (documents_.empty() || documents_.back() != tokens_) documents_.push_back(tokens_);
}

void Corpus::append(std::span<const std::int32_t> ids) {
  if (ids.empty()) return;
  if (stretches_.empty() || stretches_.back().file) stretches_.push_back({tokens_, {}, memory_.size()});
  memory_.insert(memory_.end(), ids.begin(), ids.end());
  tokens_ += std::ssize(ids);
}

void Corpus::append(std::vector<std::int32_t>&& ids) {
  if (!memory_.empty() || ids.empty()) return append(std::span<const std::int32_t>(ids));
  stretches_.push_back({tokens_, {}, 0});
  tokens_ += std::ssize(ids);
  memory_ = std::move(ids);
}

void Corpus::append(const TokenFile& file) {
  begin_document();
  if (file.size() == 0) return;
  stretches_.push_back({tokens_, file, 0});
  tokens_ += file.size();
}

std::int64_t Corpus::end_of(std::size_t stretch) const {
  return stretch + 1 < stretches_.size() ? stretches_[stretch + 1].begin : tokens_;
}

void Corpus::split_stretch(std::size_t stretch, std::int32_t separator) {
  constexpr std::int64_t kBatch = std::int64_t{1} << 16;
  std::vector<std::int32_t> ids;
  for (std::int64_t first = stretches_[stretch].begin; first < end_of(stretch); first += kBatch) {
    ids.resize(static_cast<std::size_t>(std::min(kBatch, end_of(stretch) - first)));
    read(first, ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == separator) documents_.push_back(first + static_cast<std::int64_t>(i) + 1);
    }
  }
}

void Corpus::sort_documents() {
  std::ranges::sort(documents_);
  const auto repeated = std::ranges::unique(documents_);
  documents_.erase(repeated.begin(), repeated.end());
}

void Corpus::split(std::int32_t separator) {
  for (std::size_t p = 0; p < stretches_.size(); ++p) split_stretch(p, separator);
  sort_documents();
}

void Corpus::split_token_files(std::optional<std::int32_t> separator) {
  for (std::size_t p = 0; p < stretches_.size(); ++p) {
    if (!stretches_[p].file) continue;
    const std::optional<std::int32_t> end = separator ? separator : stretches_[p].file->separator();
    if (end) split_stretch(p, *end);
    if (separator) continue;
    for (const std::int64_t place : stretches_[p].file->document_begins())
      documents_.push_back(stretches_[p].begin + place);
  }
  sort_documents();
}

std::optional<std::int32_t> Corpus::last() const {
  if (tokens_ == 0) return std::nullopt;
  std::int32_t id = 0;
  read(tokens_ - 1, {&id, 1});
  return id;
}

void Corpus::read(std::int64_t first, std::span<std::int32_t> out) const {
  assert(first >= 0 && std::ssize(out) <= tokens_ - first);
  if (out.empty()) return;
  const auto after = std::ranges::upper_bound(stretches_, first, {}, &Stretch::begin);
  for (auto p = static_cast<std::size_t>(after - stretches_.begin()) - 1; !out.empty(); ++p) {
    const Stretch& stretch = stretches_[p];
    const auto count = static_cast<std::size_t>(std::min(end_of(p) - first, std::ssize(out)));
    if (stretch.file) {
      stretch.file->read(first - stretch.begin, out.first(count));
    } else {
      const auto from =
          memory_.begin() + static_cast<std::ptrdiff_t>(stretch.in_memory) + (first - stretch.begin);
      std::copy_n(from, count, out.begin());
    }
    first += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

std::vector<std::int64_t> Corpus::document_lengths() const {
  std::vector<std::int64_t> lengths;
  lengths.reserve(documents_.size());
  for (std::size_t d = 0; d < documents_.size(); ++d) {
    const std::int64_t end = d + 1 < documents_.size() ? documents_[d + 1] : tokens_;
    if (end > documents_[d]) lengths.push_back(end - documents_[d]);
  }
  return lengths;
}

std::size_t Corpus::bytes() const {
  return memory_.capacity() * sizeof(std::int32_t) + documents_.capacity() * sizeof(std::int64_t);
}

}  // namespace mantissa::text
