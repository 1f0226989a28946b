// The input tensors of an objective that is replayed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::lab {

/// The shape of a tensor, with its symbols for messages: "[N, T]".
struct Shape {
  std::string symbols;
  std::vector<std::int64_t> sizes;
};

/// A safetensors file of named tensors. Every error names the file and the tensor: FileError for a missing
/// one, ShapeError, DtypeError, ConfigError for a value. Floating-point tensors may be f64, f32, bf16 or f16,
/// and become f64, exactly.
class Inputs {
 public:
  /// `names`: the tensors that the objective may use. A tensor of the file whose name is near to one of these
  /// that is missing is an error.
  Inputs(const std::filesystem::path& path, std::span<const std::string> names);

  bool has(std::string_view name) const;
  /// Returns the number of dimensions of a tensor that the file has.
  std::size_t dimensions(std::string_view name) const { return reader_.find(name)->shape.size(); }
  /// Returns the names of the tensors that are not used.
  std::vector<std::string> unused() const;
  /// Returns the sizes of a tensor of `dimensions` dimensions, none of which is 0. `symbols`: "[N, T]".
  std::vector<std::int64_t> sizes(std::string_view name, std::size_t dimensions,
                                  std::string_view symbols) const;

  /// Returns a tensor. `why` and `cures` are told if it is missing: "for rl.kl = k3".
  std::vector<double> numbers(std::string_view name, const Shape& shape, std::string_view why = {},
                              const std::vector<Cure>& cures = {}) const;
  /// Returns an I32 or I64 tensor.
  std::vector<std::int64_t> integers(std::string_view name, const Shape& shape,
                                     std::string_view why = {}) const;
  /// Returns the tensor "mask", whose elements are 0 or 1 and not all 0. It may also be of whole numbers.
  std::vector<float> mask(const Shape& shape) const;

  /// Throws if a value of the tensor is not finite where `mask` is not 0. If `mask` has more elements than
  /// `values`, each value belongs to a row of the mask, and counts if the row has an element that is not 0.
  void check_finite(std::string_view name, std::span<const double> values, std::span<const float> mask) const;

  std::string file() const { return reader_.path().string(); }

 private:
  const io::TensorInfo& find(std::string_view name, std::string_view why,
                             const std::vector<Cure>& cures) const;
  void check_shape(const io::TensorInfo& tensor, const Shape& shape) const;
  std::vector<std::byte> bytes(const io::TensorInfo& tensor) const;

  io::SafetensorsReader reader_;
  std::vector<std::string> names_;
};

}  // namespace mantissa::lab
