// Shapes whose leading dimension may be the token axis: a capacity when the graph is built, an extent when it
// runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace mantissa {

/// What the size of a dimension means: fixed by the model, or a capacity of which a run uses a part.
enum class Axis : std::uint8_t { fixed, tokens, rows };

struct Dim {
  std::int64_t size = 0;  // capacity, where the axis is not fixed
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
  /// Number of elements at capacity; 1 for a scalar. Throws ShapeError where it does not fit in 63 bits.
  std::int64_t count() const;
  /// Size of the last dimension; 1 for a scalar.
  std::int64_t last() const { return dims_.empty() ? 1 : dims_.back().size; }
  /// Elements in all but the last dimension.
  std::int64_t leading() const { return count() / (last() == 0 ? 1 : last()); }
  bool has_tokens() const { return !dims_.empty() && dims_.front().axis == Axis::tokens; }

  /// "[2048 tokens, 256]"
  std::string str() const;
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::vector<Dim> dims_;
};

}  // namespace mantissa
