#include "mantissa/lab/objective/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/core/base/words.h"
#include "mantissa/files/io/safetensors_header.h"
#include "mantissa/files/io/widen.h"

namespace mantissa::lab {
namespace {

template <class Stored, class T>
std::vector<T> converted(std::span<const std::byte> bytes) {
  std::vector<T> out(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<T>(value);
  }
  return out;
}

std::vector<double> floats(std::span<const std::byte> bytes, io::Dtype dtype) {
  std::vector<double> out(bytes.size() / io::bytes_of(dtype));
  io::widen(bytes, dtype, std::span(out));
  return out;
}

/// Returns the elements of a mask, or null for a dtype that is not one of masks.
std::optional<std::vector<double>> mask_elements(std::span<const std::byte> bytes, io::Dtype dtype) {
  switch (dtype) {
    case io::Dtype::boolean:
    case io::Dtype::u8:
      return converted<std::uint8_t, double>(bytes);
    case io::Dtype::i8:
      return converted<std::int8_t, double>(bytes);
    case io::Dtype::i32:
      return converted<std::int32_t, double>(bytes);
    case io::Dtype::i64:
      return converted<std::int64_t, double>(bytes);
    default:
      if (!io::is_readable_float(dtype)) return std::nullopt;
      return floats(bytes, dtype);
  }
}

/// Returns "[2, 5]" for element `i` of a tensor.
std::string index_text(std::size_t i, std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> index(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0;) {
    index[d] = static_cast<std::int64_t>(i % static_cast<std::size_t>(sizes[d]));
    i /= static_cast<std::size_t>(sizes[d]);
  }
  return io::shape_text(index);
}

}  // namespace

Inputs::Inputs(const std::filesystem::path& path, std::span<const std::string> names)
    : reader_(path), names_(names.begin(), names.end()) {
  std::vector<std::string> missing;
  std::ranges::copy_if(names_, std::back_inserter(missing), [&](const std::string& n) { return !has(n); });
  for (const std::string& name : unused()) {
    if (const std::optional<std::string> meant = nearest(name, missing)) {
      throw FileError("{}: {} is not an input of this objective; did you mean {}? Rename or remove it",
                      file(), in_quotes(name), *meant);
    }
  }
}

bool Inputs::has(std::string_view name) const {
  return reader_.find(name) != nullptr;
}

std::vector<std::string> Inputs::unused() const {
  std::vector<std::string> out;
  for (const io::TensorInfo& tensor : reader_.tensors()) {
    if (std::ranges::find(names_, tensor.name) == names_.end()) out.push_back(tensor.name);
  }
  return out;
}

const io::TensorInfo& Inputs::find(std::string_view name, std::string_view why,
                                   const std::vector<Cure>& cures) const {
  if (const io::TensorInfo* tensor = reader_.find(name)) return *tensor;
  throw FileError(fmt::format("{}: the tensor {} is missing{}{}", file(), name,
                              why.empty() ? "" : ", which is needed ", why),
                  cures);
}

std::vector<std::byte> Inputs::bytes(const io::TensorInfo& tensor) const {
  std::vector<std::byte> out(tensor.end - tensor.begin);
  reader_.read(tensor, out);
  return out;
}

std::vector<std::int64_t> Inputs::sizes(std::string_view name, std::size_t dimensions,
                                        std::string_view symbols) const {
  const io::TensorInfo& tensor = find(name, {}, {});
  const bool empty = std::ranges::any_of(tensor.shape, [](std::int64_t n) { return n == 0; });
  if (tensor.shape.size() == dimensions && !empty) return tensor.shape;
  throw ShapeError("{}: {} is {}; it must be {}, without an empty dimension", file(), name,
                   io::shape_text(tensor.shape), symbols);
}

void Inputs::check_shape(const io::TensorInfo& tensor, const Shape& shape) const {
  if (tensor.shape == shape.sizes) return;
  throw ShapeError("{}: {} is {}; it must be {} = {}", file(), tensor.name, io::shape_text(tensor.shape),
                   shape.symbols, io::shape_text(shape.sizes));
}

std::vector<double> Inputs::numbers(std::string_view name, const Shape& shape, std::string_view why,
                                    const std::vector<Cure>& cures) const {
  const io::TensorInfo& tensor = find(name, why, cures);
  if (!io::is_readable_float(tensor.dtype)) {
    throw DtypeError(
        "{}: {} is {}; it must be F32 (F64, BF16 and F16 are accepted). Save it with "
        "tensor.float() in PyTorch, or .astype(numpy.float32) in NumPy",
        file(), name, io::safetensors_name(tensor.dtype));
  }
  check_shape(tensor, shape);
  return floats(bytes(tensor), tensor.dtype);
}

std::vector<std::int64_t> Inputs::integers(std::string_view name, const Shape& shape,
                                           std::string_view why) const {
  const io::TensorInfo& tensor = find(name, why, {});
  if (tensor.dtype != io::Dtype::i32 && tensor.dtype != io::Dtype::i64) {
    throw DtypeError(
        "{}: {} is {}; it must be I32 or I64. Save it with tensor.to(torch.int64) in "
        "PyTorch, or .astype(numpy.int64) in NumPy",
        file(), name, io::safetensors_name(tensor.dtype));
  }
  check_shape(tensor, shape);
  const std::vector<std::byte> stored = bytes(tensor);
  if (tensor.dtype == io::Dtype::i64) return converted<std::int64_t, std::int64_t>(stored);
  return converted<std::int32_t, std::int64_t>(stored);
}

std::vector<float> Inputs::mask(const Shape& shape) const {
  const io::TensorInfo& tensor = find("mask", "to know which tokens count", {});
  const std::optional<std::vector<double>> elements = mask_elements(bytes(tensor), tensor.dtype);
  if (!elements) {
    throw DtypeError("{}: mask is {}; it must be F32, or a type of whole numbers up to I64", file(),
                     io::safetensors_name(tensor.dtype));
  }
  check_shape(tensor, shape);
  std::vector<float> mask;
  for (const double element : *elements) {
    if (element != 0 && element != 1) {
      throw ConfigError("{}: mask {} is {}; write 1 for tokens that count, and 0 for the others", file(),
                        index_text(mask.size(), shape.sizes), element);
    }
    mask.push_back(static_cast<float>(element));
  }
  if (std::ranges::none_of(mask, [](float m) { return m != 0; }))
    throw ConfigError("{}: mask is 0 everywhere; at least one token must count", file());
  return mask;
}

void Inputs::check_finite(std::string_view name, std::span<const double> values,
                          std::span<const float> mask) const {
  const std::size_t each = mask.size() / values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool counts = std::ranges::any_of(mask.subspan(i * each, each), [](float m) { return m != 0; });
    if (!counts || std::isfinite(values[i])) continue;
    const std::string what =
        fmt::format("{}: {} {} is {}", file(), name, index_text(i, reader_.find(name)->shape), values[i]);
    if (reader_.find("mask") == nullptr) throw ConfigError("{}; correct the value, or remove its pair", what);
    if (each > 1)
      throw ConfigError("{}, but its row has a mask of 1; correct the value, or set the row's mask to 0",
                        what);
    throw ConfigError("{}, but its mask is 1; correct the value, or set its mask to 0", what);
  }
}

}  // namespace mantissa::lab
