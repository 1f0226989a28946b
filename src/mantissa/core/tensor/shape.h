// Shapes whose leading dimension may be the token axis or the row axis. Such a dimension is a capacity at
// build time; each run uses an extent of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace mantissa {

/// The meaning of a dimension's size: fixed by the model, or a capacity that a run uses in part.
enum class Axis : std::uint8_t { fixed, tokens, rows };

struct Dim {
  std::int64_t size = 0;  // the capacity, unless the axis is fixed
  Axis axis = Axis::fixed;
  friend bool operator==(const Dim&, const Dim&) = default;
};

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}

  /// [tokens, features…]: the leading dimension is the token axis with capacity `tokens`.
  static Shape tokens(std::int64_t tokens, std::initializer_list<std::int64_t> features = {});
  /// [rows, features…]: one entry per sequence of the batch.
  static Shape rows(std::int64_t rows, std::initializer_list<std::int64_t> features = {});

  std::size_t rank() const { return dims_.size(); }
  const Dim& dim(std::size_t i) const { return dims_.at(i); }
  const std::vector<Dim>& dims() const { return dims_; }
  /// The size of every dimension, without its axis.
  std::vector<std::int64_t> sizes() const;
  /// Number of elements at capacity; 1 for a scalar. Throws ShapeError if it is negative or does not fit in
  /// 63 bits.
  std::int64_t count() const;
  /// Size of the last dimension; 1 for a scalar.
  std::int64_t last() const { return dims_.empty() ? 1 : dims_.back().size; }
  /// Number of elements in all but the last dimension.
  std::int64_t leading() const { return count() / (last() == 0 ? 1 : last()); }
  bool has_tokens() const { return !dims_.empty() && dims_.front().axis == Axis::tokens; }

  /// Formats the shape, for example "[2048 tokens, 256]".
  std::string str() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<Dim> dims_;
};

}  // namespace mantissa
