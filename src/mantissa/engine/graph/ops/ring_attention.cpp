#include "mantissa/engine/graph/ops/ring_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "mantissa/engine/graph/key_ring.h"
#include "mantissa/engine/graph/ops/ring_memory.h"
#include "mantissa/kernels/columns.h"

namespace mantissa::graph {
namespace {

/// Returns the tokens of a block in all rows.
std::int64_t tokens_of(std::span<const BlockPiece> pieces) {
  return pieces.empty() ? 0 : pieces.back().row + pieces.back().length;
}

/// K and V of a block, or what is added to their gradients: dense rows, those of K first.
struct KeyBlock {
  std::span<std::byte> bytes;
  Matrix k, v;

  KeyBlock() = default;
  KeyBlock(std::span<std::byte> memory, std::int64_t rows, std::int64_t width, Scalar k_type, Scalar v_type) {
    const auto count = static_cast<std::size_t>(rows * width);
    k = {memory.data(), k_type, width};
    v = {memory.data() + count * bytes_of(k_type), v_type, width};
    bytes = memory.first(count * (bytes_of(k_type) + bytes_of(v_type)));
  }
};

/// The blocks of keys and values in ascending order, up to this rank's late one. While one is multiplied, the
/// next one arrives.
class PassedBlocks {
 public:
  PassedBlocks(const Call& c, const kernels::AttentionShape& shape, ConstMatrix k, ConstMatrix v,
               RingMemory& w)
      : ring_(*c.ring), width_(shape.kv_heads * shape.head_dim), k_(k.type), v_(v.type) {
    std::int64_t most = 0;
    for (int block = 0; block <= ring_.late(); ++block) most = std::max(most, tokens_of(ring_.pieces(block)));
    for (std::span<std::byte>& memory : arriving_) memory = w.take(bytes(most));
    for (const int block : {ring_.early(), ring_.late()}) {
      const std::int64_t rows = tokens_of(ring_.pieces(block));
      KeyBlock& own = own_.at(block == ring_.early() ? 0 : 1);
      own = KeyBlock(w.take(bytes(rows)), rows, width_, k_, v_);
      for (const BlockPiece& p : ring_.pieces(block)) {
        const auto from = [&](const ConstMatrix& m) {
          const auto* first = static_cast<const std::byte*>(m.data);
          return ConstMatrix{first + static_cast<std::size_t>(p.token * m.ld) * bytes_of(m.type), m.type,
                             m.ld};
        };
        kernels::copy_columns(c.ctx, p.length, width_, from(k), rows_from(own.k, p.row));
        kernels::copy_columns(c.ctx, p.length, width_, from(v), rows_from(own.v, p.row));
      }
    }
    pass(0);
  }

  /// Returns the next block, valid until the second call after this one.
  KeyBlock next() {
    const int block = next_++;
    if (block < ring_.late()) pass(block + 1);
    transfers_.await(place(block));
    return at(block);
  }

 private:
  static std::size_t place(int block) { return static_cast<std::size_t>(block) % 2; }
  std::size_t bytes(std::int64_t rows) const {
    return static_cast<std::size_t>(rows * width_) * (bytes_of(k_) + bytes_of(v_));
  }
  KeyBlock at(int block) const {
    if (block == ring_.early()) return own_[0];
    if (block == ring_.late()) return own_[1];
    return {arriving_.at(place(block)), tokens_of(ring_.pieces(block)), width_, k_, v_};
  }
  void pass(int block) {
    transfers_.start(place(block), [&] { return ring_.pass(block, at(block).bytes); });
  }

  KeyRing& ring_;
  std::int64_t width_;
  Scalar k_, v_;
  std::array<KeyBlock, 2> own_;
  std::array<std::span<std::byte>, 2> arriving_;
  int next_ = 0;
  Transfers transfers_;
};

/// Calls each(queries, keys, span) for the pieces of two blocks, the second of which is earlier, that belong
/// to one document.
template <class Each>
void for_each_pair(const KeyRing& ring, int queries, int keys, const Each& each) {
  const std::span<const BlockPiece> earlier = ring.pieces(keys);
  auto key = earlier.begin();
  for (const BlockPiece& query : ring.pieces(queries)) {
    while (key != earlier.end() && key->document < query.document) ++key;
    if (key == earlier.end()) return;
    if (key->document == query.document)
      each(query, *key, kernels::KeySpan{key->length, query.position - key->position});
  }
}

std::vector<Segment> segments_of(std::span<const BlockPiece> pieces) {
  std::vector<Segment> segments;
  for (const BlockPiece& p : pieces) segments.push_back({p.token, p.length});
  return segments;
}

/// Calls each(block) for this rank's blocks that attend to `keys`.
template <class Each>
void for_each_later(const KeyRing& ring, int keys, const Each& each) {
  for (const int block : {ring.early(), ring.late()}) {
    if (block >= keys) each(block);
  }
}

}  // namespace

namespace {

/// Own keys and values, and as many that arrive.
std::size_t key_bytes(const kernels::AttentionShape& shape, std::int64_t tokens, Scalar k, Scalar v) {
  return static_cast<std::size_t>(2 * tokens * shape.kv_heads * shape.head_dim) * (bytes_of(k) + bytes_of(v));
}

}  // namespace

std::size_t ring_workspace(const kernels::AttentionShape& shape, std::int64_t tokens, Scalar arithmetic,
                           Scalar k, Scalar v) {
  constexpr std::size_t kPieces = 8;  // each is aligned
  const std::int64_t results = tokens * shape.heads * shape.head_dim;
  return static_cast<std::size_t>(results) * bytes_of(arithmetic) + key_bytes(shape, tokens, k, v) +
         kPieces * kAlignment;
}

std::size_t ring_backward_workspace(const kernels::AttentionShape& shape, std::int64_t tokens,
                                    Scalar arithmetic, Scalar k, Scalar v) {
  const std::int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  constexpr std::size_t kPieces = 16;
  // dQ, dK and dV; two blocks of contributions of each of the two blocks, and one that arrives.
  return static_cast<std::size_t>(tokens * (q + 2 * kv + 5 * kv)) * bytes_of(arithmetic) +
         key_bytes(shape, tokens, k, v) + kPieces * kAlignment;
}

void ring_attention(const Call& c, kernels::Attention a) {
  KeyRing& ring = *c.ring;
  const kernels::AttentionShape& shape = a.shape;
  const std::int64_t width = shape.heads * shape.head_dim;
  RingMemory workspace(
      c, kernels::attention_workspace(c.ctx, shape, c.extent.tokens, 0, c.arithmetic, a.operand.parts));
  const Matrix out = std::exchange(a.out, workspace.matrix(c.extent.tokens, width, c.arithmetic));
  for (std::int64_t t = 0; t < c.extent.tokens; ++t) {
    for (std::int64_t h = 0; h < shape.heads; ++h) {
      const auto i = static_cast<std::size_t>(t * a.lse.ld + h);
      constexpr double kNothing = -std::numeric_limits<double>::infinity();
      if (c.arithmetic == Scalar::f64) {
        static_cast<double*>(a.lse.data)[i] = kNothing;
      } else {
        static_cast<float*>(a.lse.data)[i] = static_cast<float>(kNothing);
      }
    }
  }
  a.merge = true;
  PassedBlocks blocks(c, shape, a.k, a.v, workspace);
  const auto attend = [&](std::span<const Segment> queries, const kernels::Attention& part) {
    kernels::attention(c.ctx, {c.extent.tokens, {}, queries}, part);
  };
  for (int keys = 0; keys <= ring.late(); ++keys) {
    const KeyBlock block = blocks.next();
    for_each_later(ring, keys, [&](int queries) {
      if (queries == keys) return attend(segments_of(ring.pieces(keys)), a);
      for_each_pair(ring, queries, keys,
                    [&](const BlockPiece& query, const BlockPiece& key, const kernels::KeySpan& span) {
                      kernels::Attention part = a;
                      part.k = rows_from(block.k, key.row);
                      part.v = rows_from(block.v, key.row);
                      part.span = span;
                      attend({{{query.token, query.length}}}, part);
                    });
    });
  }
  kernels::copy_columns(c.ctx, c.extent.tokens, width, a.out, out);
}

namespace {

/// Adds contributions to K and V, or to their gradients, on the tokens of a block.
template <class T>
void add_to(std::span<const BlockPiece> pieces, std::span<const std::byte> bytes, const Matrix& dk,
            const Matrix& dv) {
  const auto width = static_cast<std::size_t>(dk.ld);
  const auto* from = reinterpret_cast<const T*>(bytes.data());
  for (const Matrix* to : {&dk, &dv}) {
    for (const BlockPiece& p : pieces) {
      T* sum = static_cast<T*>(to->data) + static_cast<std::size_t>(p.token) * width;
      const T* part = from + static_cast<std::size_t>(p.row) * width;
      const auto count = static_cast<std::size_t>(p.length) * width;
      for (std::size_t i = 0; i < count; ++i) sum[i] += part[i];
    }
    from += static_cast<std::size_t>(tokens_of(pieces)) * width;
  }
}

/// The contributions of this rank's queries to dK and dV of earlier blocks, on their way to the owners.
class Contributions {
 public:
  Contributions(const Call& c, const kernels::AttentionShape& shape, RingMemory& w)
      : ring_(*c.ring), width_(shape.kv_heads * shape.head_dim), type_(c.arithmetic) {
    dk_ = w.matrix(c.extent.tokens, width_, type_);
    dv_ = w.matrix(c.extent.tokens, width_, type_);
    std::int64_t most = 0;
    for (int block = 0; block <= ring_.late(); ++block) most = std::max(most, tokens_of(ring_.pieces(block)));
    const std::size_t bytes = 2 * static_cast<std::size_t>(most * width_) * bytes_of(type_);
    for (std::span<std::byte>& memory : sent_) memory = w.take(bytes);
    received_ = w.take(bytes);
  }

  /// dK and dV of this rank's tokens.
  const Matrix& dk() const { return dk_; }
  const Matrix& dv() const { return dv_; }

  /// Returns zeros for what the next one of this rank's blocks adds to the gradients of block `keys`.
  KeyBlock begin(int keys) {
    if (own_.empty()) transfers_.await(place(keys));  // the memory
    const std::span<std::byte> memory = sent_.at(2 * place(keys) + own_.size());
    KeyBlock block(memory, tokens_of(ring_.pieces(keys)), width_, type_, type_);
    std::memset(block.bytes.data(), 0, block.bytes.size());
    own_.push_back(block.bytes);
    return block;
  }

  /// Sends what was begun for block `keys`. Its owner has written the gradients from its own queries.
  void send(int keys) {
    if (keys + 1 == ring_.blocks()) return;
    const std::span<const BlockPiece> pieces = ring_.pieces(keys);
    const std::size_t bytes = 2 * static_cast<std::size_t>(tokens_of(pieces) * width_) * bytes_of(type_);
    transfers_.start(place(keys), [&] {
      return ring_.collect(keys, std::exchange(own_, {}), received_.first(bytes),
                           [pieces, dk = dk_, dv = dv_](std::span<const std::byte> part) {
                             dk.type == Scalar::f64 ? add_to<double>(pieces, part, dk, dv)
                                                    : add_to<float>(pieces, part, dk, dv);
                           });
    });
  }

  void complete() { transfers_.complete(); }

 private:
  static std::size_t place(int block) { return static_cast<std::size_t>(block) % 2; }

  KeyRing& ring_;
  std::int64_t width_;
  Scalar type_;
  Matrix dk_, dv_;
  std::array<std::span<std::byte>, 4> sent_;
  std::span<std::byte> received_;
  std::vector<std::span<std::byte>> own_;
  Transfers transfers_;
};

}  // namespace

void ring_attention_backward(const Call& c, kernels::AttentionBackward a) {
  KeyRing& ring = *c.ring;
  const kernels::AttentionShape& shape = a.shape;
  const std::int64_t tokens = c.extent.tokens, width = shape.heads * shape.head_dim,
                     kv_width = shape.kv_heads * shape.head_dim;
  std::int64_t longest = 0;
  for (const Segment& s : c.extent.segments) longest = std::max(longest, s.length);
  RingMemory workspace(
      c, kernels::attention_backward_workspace(c.ctx, shape, tokens, longest, c.arithmetic, a.operand.parts));
  const Matrix dq = std::exchange(a.dq, workspace.matrix(tokens, width, c.arithmetic));
  const Matrix dk = a.dk, dv = a.dv;
  kernels::zero_columns(c.ctx, tokens, width, a.dq);
  a.add_dq = true;
  PassedBlocks blocks(c, shape, a.k, a.v, workspace);
  Contributions contributions(c, shape, workspace);
  const auto attend = [&](std::span<const Segment> queries, const kernels::AttentionBackward& part) {
    kernels::attention_backward(c.ctx, {tokens, {}, queries}, part);
  };
  for (int keys = 0; keys <= ring.late(); ++keys) {
    const KeyBlock block = blocks.next();
    for_each_later(ring, keys, [&](int queries) {
      if (queries == keys) {
        kernels::AttentionBackward part = a;
        part.dk = contributions.dk();
        part.dv = contributions.dv();
        return attend(segments_of(ring.pieces(keys)), part);
      }
      const KeyBlock added = contributions.begin(keys);
      for_each_pair(ring, queries, keys,
                    [&](const BlockPiece& query, const BlockPiece& key, const kernels::KeySpan& span) {
                      kernels::AttentionBackward part = a;
                      part.k = rows_from(block.k, key.row);
                      part.v = rows_from(block.v, key.row);
                      part.dk = rows_from(added.k, key.row);
                      part.dv = rows_from(added.v, key.row);
                      part.span = span;
                      attend({{{query.token, query.length}}}, part);
                    });
    });
    contributions.send(keys);
  }
  contributions.complete();
  kernels::copy_columns(c.ctx, tokens, width, a.dq, dq);
  kernels::copy_columns(c.ctx, tokens, kv_width, contributions.dk(), dk);
  kernels::copy_columns(c.ctx, tokens, kv_width, contributions.dv(), dv);
}

}  // namespace mantissa::graph
