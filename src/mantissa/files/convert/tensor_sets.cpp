#include "mantissa/files/convert/tensor_sets.h"

#include <algorithm>
#include <set>

#include "mantissa/core/base/suggest.h"
#include "mantissa/files/convert/pieces.h"
#include "mantissa/files/convert/value_format.h"
#include "mantissa/files/io/hash.h"

namespace mantissa::convert {
namespace {

/// The bytes of a tensor on both sides.
struct ComparedBytes {
  std::uint64_t hash_a = 0, hash_b = 0;
  bool equal = false;
};

constexpr std::uint64_t kPart = std::uint64_t{1} << 20;  // bytes of a tensor that are read at a time

ComparedBytes compare_stored(const TensorSide& a, const TensorSide& b) {
  const std::uint64_t bytes_a = a.tensor->end - a.tensor->begin, bytes_b = b.tensor->end - b.tensor->begin;
  io::Hash64 hash_a, hash_b;
  ComparedBytes result{.equal = bytes_a == bytes_b};
  std::vector<std::byte> part_a, part_b;
  for (std::uint64_t at = 0; at < std::max(bytes_a, bytes_b); at += kPart) {
    const auto read = [&at](const TensorSide& side, std::uint64_t bytes, std::vector<std::byte>& part) {
      part.resize(at < bytes ? std::min(kPart, bytes - at) : 0);
      if (!part.empty()) side.files->read(side.tensor->name, part, at);
    };
    read(a, bytes_a, part_a);
    read(b, bytes_b, part_b);
    hash_a.update(part_a);
    hash_b.update(part_b);
    result.equal = result.equal && part_a == part_b;
  }
  result.hash_a = hash_a.digest();
  result.hash_b = hash_b.digest();
  return result;
}

std::optional<Scalar> narrower(std::optional<Scalar> a, std::optional<Scalar> b) {
  if (!a || !b) return std::nullopt;
  return traits(*a).mantissa_bits <= traits(*b).mantissa_bits ? a : b;
}

/// Returns the shape without dimensions of one element.
std::vector<std::int64_t> without_ones(std::vector<std::int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

/// Returns true if two shapes with equally many elements have the same rows, in one order.
bool have_same_rows(const io::TensorInfo& a, const io::TensorInfo& b) {
  if (a.count() == 0) return true;
  const std::vector<std::int64_t> of_a = without_ones(a.shape), of_b = without_ones(b.shape);
  return of_a.size() <= 1 || of_b.size() <= 1 || of_a.back() == of_b.back();
}

DifferentTensor describe(const TensorSide& a, const TensorSide& b, const ComparedBytes& bytes,
                         ShapeRule shapes, const kernels::Context& ctx) {
  DifferentTensor d{
      .name = a.tensor->name, .a = *a.tensor, .b = *b.tensor, .hash_a = bytes.hash_a, .hash_b = bytes.hash_b};
  d.comparable = shapes == ShapeRule::exact ? d.a.shape == d.b.shape
                                            : d.a.count() == d.b.count() && have_same_rows(d.a, d.b);
  if (!d.comparable) return d;
  d.unit = narrower(value_format(*a.files, d.a, ctx), value_format(*b.files, d.b, ctx));
  d.elements = compare_elements(a, b, d.unit, ctx);
  return d;
}

/// Returns the names of `these` that `others` lacks, with their nearest names among those that `these` lacks.
std::vector<UnmatchedTensor> unmatched(const TensorSet& these, const TensorSet& others) {
  // A search takes the product of the numbers and lengths of the names.
  constexpr std::size_t kMostCandidates = 500, kMostSearches = 100, kLongestName = 200;
  const std::set<std::string> known(these.names.begin(), these.names.end());
  const std::set<std::string> present(others.names.begin(), others.names.end());
  std::vector<std::string> candidates;
  for (const std::string& name : others.names) {
    if (!known.contains(name) && name.size() <= kLongestName && candidates.size() < kMostCandidates)
      candidates.push_back(name);
  }
  std::vector<UnmatchedTensor> missing;
  for (const std::string& name : these.names) {
    if (present.contains(name)) continue;
    const bool search = missing.size() < kMostSearches && name.size() <= kLongestName;
    missing.push_back({name, search ? nearest(name, candidates).value_or("") : ""});
  }
  return missing;
}

}  // namespace

std::vector<const DifferentTensor*> TensorDifferences::differing(bool bitwise) const {
  std::vector<const DifferentTensor*> all;
  for (const DifferentTensor& d : different) {
    if (bitwise || !d.equal_values()) all.push_back(&d);
  }
  return all;
}

TensorDifferences compare_tensors(const TensorSet& a, const TensorSet& b, ShapeRule shapes,
                                  const kernels::Context& ctx) {
  TensorDifferences all;
  std::vector<std::pair<TensorSide, TensorSide>> pairs;
  for (const std::string& name : a.names) {
    const io::TensorInfo* other = b.files->find(name);
    if (other == nullptr) continue;
    pairs.push_back({{a.files, a.files->find(name)}, {b.files, other}});
    all.bytes += pairs.back().first.tensor->end - pairs.back().first.tensor->begin;
  }
  all.compared = pairs.size();
  std::vector<ComparedBytes> bytes(pairs.size());
  for_each_on_threads(ctx, pairs.size(), [&](std::size_t i, int /*thread*/) {
    bytes[i] = compare_stored(pairs[i].first, pairs[i].second);
  });
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const io::TensorInfo &from = *pairs[i].first.tensor, &to = *pairs[i].second.tensor;
    if (bytes[i].equal && from.dtype == to.dtype && from.shape == to.shape) continue;
    all.different.push_back(describe(pairs[i].first, pairs[i].second, bytes[i], shapes, ctx));
  }
  all.only_a = unmatched(a, b);
  all.only_b = unmatched(b, a);
  return all;
}

std::vector<std::uint64_t> index_of(std::uint64_t flat, const std::vector<std::int64_t>& shape) {
  std::vector<std::uint64_t> index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    const auto size = static_cast<std::uint64_t>(shape[d]);
    index[d] = flat % size;
    flat /= size;
  }
  return index;
}

}  // namespace mantissa::convert
