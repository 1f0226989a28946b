#include "mantissa/text/rows/row_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/core/base/counted.h"
#include "mantissa/text/rows/packing.h"

namespace mantissa::text {
namespace {

template <class T>
std::size_t capacity_bytes(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

std::string stream_shortage(std::int64_t tokens, std::int64_t rows, std::int64_t length, std::int64_t wanted,
                            const std::string& purpose) {
  return fmt::format(
      "{} form {} of data.sequence_length = {}; {} needs at least {}, that is {} tokens. "
      "Fix: more data or a shorter sequence_length",
      counted(tokens, "token"), counted(rows, "sequence"), length, purpose, wanted,
      static_cast<double>(wanted) * static_cast<double>(length) + 1);
}

/// Makes the rows of `step` since its last pack a pack.
void end_pack(StepData& step) {
  if (step.packs.empty()) step.packs.push_back(0);
  step.rows = std::ssize(step.origin);
  step.packs.push_back(step.rows);
}

class Sequences final : public RowStore {
 public:
  Sequences(std::shared_ptr<const Corpus> corpus, std::int64_t length)
      : corpus_(std::move(corpus)), length_(length) {}

  std::int64_t rows() const override { return tokens() == 0 ? 0 : (tokens() - 1) / length_; }
  std::int64_t length(std::int64_t /*row*/) const override { return length_; }
  void append(std::int64_t row, std::int64_t origin, StepData& step) const override {
    const std::size_t before = step.ids.size(), count = static_cast<std::size_t>(length_) + 1;
    step.ids.resize(before + count);
    corpus_->read(row * length_, std::span(step.ids).subspan(before));
    step.origin.push_back(origin);
  }
  std::int64_t tokens() const override { return corpus_->tokens(); }
  std::vector<std::int64_t> document_lengths() const override { return corpus_->document_lengths(); }
  std::int64_t ids_in_rows() const override { return rows() * (length_ + 1); }
  std::size_t bytes() const override { return corpus_->bytes(); }
  std::string shortage(std::int64_t wanted, const std::string& purpose) const override {
    return stream_shortage(tokens(), rows(), length_, wanted, purpose);
  }

 private:
  std::shared_ptr<const Corpus> corpus_;
  std::int64_t length_;
};

/// Rows, or packs of `pack` rows each.
class Listed final : public RowStore {
 public:
  explicit Listed(std::vector<Row> rows, std::size_t pack = 1) : rows_(std::move(rows)), pack_(pack) {}

  std::int64_t rows() const override { return static_cast<std::int64_t>(rows_.size() / pack_); }
  std::int64_t length(std::int64_t number) const override {
    std::int64_t inputs = 0;
    for (const Row& row : at(number)) inputs += std::ssize(row.ids) - 1;
    return inputs;
  }
  void append(std::int64_t number, std::int64_t origin, StepData& step) const override {
    for (const Row& row : at(number)) append_row(row, origin, step);
    if (pack_ > 1) end_pack(step);
  }
  std::vector<std::int64_t> document_lengths() const override {
    std::vector<std::int64_t> lengths;
    for (const Row& row : rows_) {
      if (row.documents.empty()) lengths.push_back(std::ssize(row.ids));
      lengths.insert(lengths.end(), row.documents.begin(), row.documents.end());
    }
    return lengths;
  }
  std::int64_t ids_in_rows() const override {
    std::int64_t sum = 0;
    for (const Row& row : rows_) sum += std::ssize(row.ids);
    return sum;
  }
  std::size_t bytes() const override {
    std::size_t sum = capacity_bytes(rows_);
    for (const Row& row : rows_) {
      sum += capacity_bytes(row.ids) + capacity_bytes(row.labels) + capacity_bytes(row.weights) +
             capacity_bytes(row.documents);
    }
    return sum;
  }
  std::string shortage(std::int64_t wanted, const std::string& purpose) const override {
    return fmt::format("{}, and {} needs at least {}", counted(rows(), pack_ > 1 ? "pair" : "row"), purpose,
                       wanted);
  }

 private:
  std::span<const Row> at(std::int64_t number) const {
    return std::span(rows_).subspan(static_cast<std::size_t>(number) * pack_, pack_);
  }

  std::vector<Row> rows_;
  std::size_t pack_;
};

class Packed final : public RowStore {
 public:
  Packed(Corpus corpus, std::int64_t length) : corpus_(std::move(corpus)) {
    std::vector<Piece> pieces;
    std::vector<std::int64_t> lengths;
    std::int64_t begin = 0;
    for (const std::int64_t document : corpus_.document_lengths()) {
      for (std::int64_t at = 0; at + 1 < document; at += length) {
        lengths.push_back(std::min(length + 1, document - at));
        pieces.push_back({begin + at, lengths.back()});
      }
      begin += document;
    }
    pieces_.reserve(pieces.size());
    for (const std::vector<std::int64_t>& row : pack(lengths, length + 1)) {
      begins_.push_back(pieces_.size());
      for (const std::int64_t piece : row) pieces_.push_back(pieces[static_cast<std::size_t>(piece)]);
    }
    begins_.push_back(pieces_.size());
  }

  std::int64_t rows() const override { return std::ssize(begins_) - 1; }
  std::int64_t length(std::int64_t number) const override {
    const auto r = static_cast<std::size_t>(number);
    std::int64_t ids = 0;
    for (std::size_t p = begins_[r]; p < begins_[r + 1]; ++p) ids += pieces_[p].length;
    return ids - 1;
  }
  void append(std::int64_t number, std::int64_t origin, StepData& step) const override {
    const auto r = static_cast<std::size_t>(number);
    Row document;
    for (std::size_t p = begins_[r]; p < begins_[r + 1]; ++p) {
      document.ids.resize(static_cast<std::size_t>(pieces_[p].length));
      corpus_.read(pieces_[p].begin, document.ids);
      append_row(document, origin, step);
    }
    end_pack(step);
  }
  std::int64_t tokens() const override { return corpus_.tokens(); }
  std::vector<std::int64_t> document_lengths() const override { return corpus_.document_lengths(); }
  std::int64_t ids_in_rows() const override {
    std::int64_t sum = 0;
    for (const Piece& piece : pieces_) sum += piece.length;
    return sum;
  }
  std::size_t bytes() const override {
    return corpus_.bytes() + capacity_bytes(pieces_) + capacity_bytes(begins_);
  }
  std::string shortage(std::int64_t wanted, const std::string& purpose) const override {
    return fmt::format(
        "{} of documents form {} with data.packing; {} needs at least {}. Fix: more data or a "
        "shorter sequence_length",
        counted(tokens(), "token"), counted(rows(), "row"), purpose, wanted);
  }

 private:
  /// Ids of the corpus that attend to each other.
  struct Piece {
    std::int64_t begin = 0, length = 0;
  };
  Corpus corpus_;
  std::vector<Piece> pieces_;        // of all rows, row by row
  std::vector<std::size_t> begins_;  // of the rows in pieces_, and the end
};

}  // namespace

std::shared_ptr<const RowStore> sequences(std::shared_ptr<const Corpus> corpus,
                                          std::int64_t sequence_length) {
  return std::make_shared<Sequences>(std::move(corpus), sequence_length);
}

std::shared_ptr<const RowStore> sequences(Corpus corpus, std::int64_t sequence_length) {
  return sequences(std::make_shared<const Corpus>(std::move(corpus)), sequence_length);
}

std::shared_ptr<const RowStore> listed(std::vector<Row> rows) {
  return std::make_shared<Listed>(std::move(rows));
}

std::shared_ptr<const RowStore> paired(std::vector<Row> rows) {
  return std::make_shared<Listed>(std::move(rows), 2);
}

std::shared_ptr<const RowStore> packed(Corpus corpus, std::int64_t sequence_length) {
  return std::make_shared<Packed>(std::move(corpus), sequence_length);
}

}  // namespace mantissa::text
