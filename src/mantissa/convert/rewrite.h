// One safetensors file rewritten in another format, piece by piece on all threads, with what that did to
// every tensor's values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/convert/weight_scale.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/kernels/context.h"
#include "mantissa/numeric/error_stats.h"
#include "mantissa/numeric/format.h"
#include "mantissa/numeric/scaled.h"

namespace mantissa::convert {

/// What floating-point tensors become.
struct Change {
  std::optional<Scalar> format;  // of their values; nothing: every tensor stays as it is
  Rounding rounding = Rounding::nearest;
  bool saturate = false;   // values beyond the range become the largest; else infinities (e4m3: nans)
  std::uint64_t seed = 1;  // of stochastic rounding
  /// Values are first rounded to blocks of this, along the last axis and from each row's first element on;
  /// `format` is what holds them: bf16, of nvfp4, whose tensors have a scale in f32, f32.
  std::optional<BlockFormat> blocks = {};
};

/// "mxfp4", "bf16": what `change` rounds values to, where it says a format.
std::string_view rounded_to(const Change& change);

/// A tensor that was rewritten.
struct RewrittenTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  io::Dtype from = io::Dtype::f32, to = io::Dtype::f32;
  bool copied = false;  // byte for byte: integers, truth values, and what has the format already
  ErrorStats errors;    // of floating-point tensors; a copied one has none, and is not looked into

  /// Values that were finite and are inf or nan.
  std::uint64_t lost() const { return errors.count - errors.nonfinite - errors.measured; }
};

/// A tensor to write, under its own or another name.
struct Part {
  const io::TensorInfo* tensor = nullptr;
  std::string name;
  std::shared_ptr<const WeightScale> scale = nullptr;  // multiplied in, in f32 (f64 into f64)
};

/// What a tensor of `dtype` is stored as after `change`.
io::Dtype dtype_after(io::Dtype dtype, const Change& change);

/// Whether `change` rounds values of `part`: its format does not hold all of them.
bool rounds(const Part& part, const Change& change);

/// Whether `change` leaves the bytes of `part` as they are.
bool keeps(const Part& part, const Change& change);

/// Writes `parts` of `in` in their order to `out`, beside it first: it appears whole or not at all. Element i
/// of a tensor is rounded stochastically with the bits of (seed, hash of the tensor's new name, i), so the
/// bytes do not depend on threads, pieces or what else is in the file. Returns nothing where `stop` was
/// used. Throws FileError and ResourceError as io does; there is no `out` then.
std::optional<std::vector<RewrittenTensor>> rewrite_file(const io::SafetensorsReader& in,
                                                         std::span<const Part> parts,
                                                         const std::filesystem::path& out,
                                                         const std::map<std::string, std::string>& metadata,
                                                         const Change& change, const kernels::Context& ctx,
                                                         const std::stop_token& stop = {});

}  // namespace mantissa::convert
