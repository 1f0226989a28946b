#include "mantissa/train/steps/key_ring.h"

#include <algorithm>
#include <utility>

#include "mantissa/core/tensor/row_blocks.h"

namespace mantissa::train {

KeyRing::KeyRing(comm::Communicator& ranks, int parts)
    : ranks_(ranks),
      parts_(parts),
      part_(ranks.rank() % parts),
      first_(ranks.rank() - part_),
      pieces_(static_cast<std::size_t>(2 * parts)) {}

void KeyRing::set_rows(std::span<const SharedRow> rows) {
  for (std::vector<graph::BlockPiece>& pieces : pieces_) pieces.clear();
  rows_ = 0;
  std::vector<std::int64_t> begin_of_rows(
      pieces_.size());  // in the blocks, which have the tokens of all rows
  std::int64_t token = 0, document = 0;
  for (const SharedRow& row : rows) {
    const std::int64_t length = shared_length(row.length, parts_);
    std::vector<std::int64_t> documents = row.documents;
    if (documents.empty()) documents.push_back(row.length);
    documents.back() += length - row.length;  // padding
    for (int block = 0; block < blocks(); ++block) {
      const TokenRange range = block_of(length, block, blocks());
      const auto at = static_cast<std::size_t>(block);
      const bool own = block == early() || block == late();
      std::int64_t begin = 0;
      for (std::size_t d = 0; d < documents.size(); begin += documents[d++]) {
        const std::int64_t first = std::max(begin, range.begin),
                           end = std::min(begin + documents[d], range.end);
        if (first >= end) continue;
        pieces_[at].push_back({begin_of_rows[at] + first - range.begin, end - first, first - begin,
                               document + static_cast<std::int64_t>(d), own ? token + first - range.begin : 0,
                               rows_});
      }
      begin_of_rows[at] += range.count();
      if (own) token += range.count();
    }
    document += static_cast<std::int64_t>(documents.size());
    ++rows_;
  }
}

std::future<void> KeyRing::pass(int block, std::span<std::byte> bytes) {
  const bool late = block >= parts_;
  return ranks_.start(
      [=, owner = owner(block), part = part_, parts = parts_, first = first_](comm::Messages& m) {
        if (part != owner) {
          m.receive(first + (part > owner ? part - 1 : part + 1), bytes);
          m.complete();
        }
        if (part >= owner && part + 1 < parts && !late) m.send(first + part + 1, bytes);
        if (part <= owner && part > 0) m.send(first + part - 1, bytes);
        m.complete();
      });
}

std::future<void> KeyRing::collect(int block, std::vector<std::span<std::byte>> own,
                                   std::span<std::byte> other,
                                   std::function<void(std::span<const std::byte>)> add) {
  std::vector<int> from;  // the ranks of the blocks that contribute
  for (int later = block + 1; later < blocks(); ++later) from.push_back(first_ + owner(later));
  const int to = first_ + owner(block);
  return ranks_.start(
      [=, own = std::move(own), from = std::move(from), add = std::move(add)](comm::Messages& m) {
        if (m.rank() != to) {
          for (const std::span<std::byte> bytes : own) m.send(to, bytes);
          return m.complete();
        }
        auto next = own.begin();
        for (const int rank : from) {
          if (rank == to) {
            add(*next++);
            continue;
          }
          m.receive(rank, other);
          m.complete();
          add(other);
        }
      });
}

std::future<void> KeyRing::send(int block, std::span<const std::byte> bytes) {
  return ranks_.start([=, to = first_ + owner(block)](comm::Messages& m) {
    m.send(to, bytes);
    m.complete();
  });
}

std::future<void> KeyRing::receive(int block, std::span<std::byte> bytes) {
  return ranks_.start([=, from = first_ + owner(block)](comm::Messages& m) {
    m.receive(from, bytes);
    m.complete();
  });
}

}  // namespace mantissa::train
