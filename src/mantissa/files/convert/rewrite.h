// Rewrites the tensors of one file in another format, in pieces on all threads, and measures the effect on
// every tensor's values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/files/convert/adapted_weight.h"
#include "mantissa/files/convert/tensor_file.h"
#include "mantissa/files/convert/weight_scale.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// A conversion of floating-point tensors.
struct Change {
  std::optional<Scalar> format;  // the new format; null keeps every tensor
  Rounding rounding = Rounding::nearest;
  bool saturate = false;   // values beyond the range become the largest finite value; else inf (e4m3: NaN)
  std::uint64_t seed = 1;  // of stochastic rounding
  /// If set, values are first rounded to blocks of this format, along the last axis from each row's first
  /// element. `format` then is the format that stores them: bf16, or f32 for nvfp4, whose tensors have an f32
  /// scale.
  std::optional<BlockFormat> blocks = {};
};

/// Returns the name of the format that `change` rounds to: "mxfp4", "bf16". `change.format` must be set.
std::string_view rounded_to(const Change& change);

/// A rewritten tensor.
struct RewrittenTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  io::Dtype from = io::Dtype::f32, to = io::Dtype::f32;
  bool copied = false;  // copied byte for byte: integers, booleans, and tensors that already have the format
  std::string from_name = {}, to_name = {};  // types of a GGUF file ("Q4_1"); empty: the name of the dtype
  ErrorStats errors = {};  // of floating-point tensors; a copied one has no errors and is not examined
  std::optional<MergeLoss> merge = {};  // of a weight with an adapter added

  std::string_view type_before() const { return from_name.empty() ? io::safetensors_name(from) : from_name; }
  std::string_view type_after() const { return to_name.empty() ? io::safetensors_name(to) : to_name; }
  /// Returns the number of finite values that became inf or NaN.
  std::uint64_t lost() const { return errors.count - errors.nonfinite - errors.measured; }
};

/// A tensor to write, with its name in the new file.
struct OutputTensor {
  const io::TensorInfo* tensor = nullptr;
  std::string name;
  // multiplied into the values, in f32 (in f64 for output in f64)
  std::shared_ptr<const WeightScale> scale = nullptr;
  // added to the values, which are then in f64; the tensor keeps its format if the change has none
  std::shared_ptr<const AdaptedWeight> adapter = nullptr;
  /// Set for a model that was trained for the blocks of the change: true if the run computed with rounded
  /// values, to which the errors are then relative; false if it did not, so the tensor keeps its values.
  std::optional<bool> trained = {};
};

/// Returns the dtype that stores a tensor of `dtype` after `change`.
io::Dtype dtype_after(io::Dtype dtype, const Change& change);

/// True if `change` rounds values of `output`: its format cannot hold all of them.
bool rounds(const OutputTensor& output, const Change& change);

/// True if `change` copies the bytes of `output` unchanged.
bool keeps(const OutputTensor& output, const Change& change);

/// Writes `outputs` of `in` in order to `out`, a file of the kind `container`, atomically. Stochastic
/// rounding of element i uses the random bits of (seed, hash of the tensor's new name, i), so the bytes do
/// not depend on threads, pieces or other tensors of the file. Returns null if `stop` was requested. Throws
/// FileError and ResourceError like io and then leaves no `out`.
std::optional<std::vector<RewrittenTensor>> rewrite_file(const io::TensorSource& in,
                                                         std::span<const OutputTensor> outputs,
                                                         Container container, const disk::Target& out,
                                                         const std::map<std::string, std::string>& metadata,
                                                         const Change& change, const kernels::Context& ctx,
                                                         const std::stop_token& stop = {});

}  // namespace mantissa::convert
