// The differences between two sets of named tensors: checkpoints, states or traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/files/convert/element_differences.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// A tensor of both sides that is not stored alike.
struct DifferentTensor {
  std::string name;
  io::TensorInfo a, b;
  std::uint64_t hash_a = 0, hash_b = 0;       // xxh64 of the bytes
  bool comparable = false;                    // the shapes allow a comparison of elements (ShapeRule)
  std::optional<Scalar> unit = std::nullopt;  // of max_ulp: the narrower format of the values
  ElementDifferences elements = {};           // if comparable
  /// True if there are equally many elements, but the shapes do not give them one order.
  bool reordered() const { return !comparable && a.count() == b.count(); }
  /// True if shape and values are equal, although bytes or dtypes differ.
  bool equal_values() const { return comparable && elements.differ == 0; }
};

/// A tensor that only one side has.
struct UnmatchedTensor {
  std::string name;
  std::string nearest;  // the most similar name of the other side, or ""
};

struct TensorDifferences {
  std::size_t compared = 0;                // tensors of both sides
  std::uint64_t bytes = 0;                 // of these, in A
  std::vector<DifferentTensor> different;  // in the order of the names
  std::vector<UnmatchedTensor> only_a, only_b;

  /// Returns the tensors that differ, by value or, for `bitwise`, by dtype, shape or bytes. In order.
  std::vector<const DifferentTensor*> differing(bool bitwise) const;
  bool equal(bool bitwise) const { return only_a.empty() && only_b.empty() && differing(bitwise).empty(); }
};

/// Tensors of a file in the order in which they are compared.
struct TensorSet {
  const io::WeightFiles* files = nullptr;
  std::vector<std::string> names;
};

enum class ShapeRule {
  exact,
  // Rows may be divided into dimensions in another way: [B, T, width] and [B·T, width]. One may also be a
  // vector. Other shapes with equally many elements may have them in another order.
  rows,
};

/// Compares the tensors in the order of `a`. Tensors are read in pieces: first all bytes; then, for tensors
/// whose bytes differ, the elements. Throws FileError.
TensorDifferences compare_tensors(const TensorSet& a, const TensorSet& b, ShapeRule shapes,
                                  const kernels::Context& ctx);

/// Returns the index of element `flat` of a tensor with elements.
std::vector<std::uint64_t> index_of(std::uint64_t flat, const std::vector<std::int64_t>& shape);

}  // namespace mantissa::convert
