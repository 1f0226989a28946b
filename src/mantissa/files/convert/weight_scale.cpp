#include "mantissa/files/convert/weight_scale.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/json.h"

namespace mantissa::convert {
namespace {

std::int64_t blocks(std::int64_t size, std::int64_t block) {
  return (size + block - 1) / block;
}

/// Returns the rows or columns per block if `count` scales cover `size` of them, or null if that is
/// ambiguous.
std::optional<std::int64_t> block_of(std::int64_t size, std::int64_t count,
                                     std::optional<std::int64_t> said) {
  constexpr std::int64_t kUsual = 128;
  if (count < 1) return std::nullopt;
  if (said) return blocks(size, *said) == count ? said : std::nullopt;
  if (count == 1) return size;
  if (blocks(size, kUsual) == count) return kUsual;
  return size % count == 0 ? std::optional(size / count) : std::nullopt;
}

/// An E8M0 code is a power of two, 2^(code − 127); 255 is NaN.
void read_scales(const io::WeightFiles& files, const io::TensorInfo& scale, std::span<float> out) {
  if (scale.dtype != io::Dtype::e8m0) return files.read_f32(scale.name, out);
  std::vector<std::uint8_t> codes(out.size());
  files.read(scale.name, std::as_writable_bytes(std::span(codes)));
  std::transform(codes.begin(), codes.end(), out.begin(), [](std::uint8_t code) {
    return code == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0F, code - 127);
  });
}

}  // namespace

std::optional<BlockSize> block_size_in(const std::filesystem::path& config) {
  if (!disk::exists(config)) return std::nullopt;
  const nlohmann::json json = io::read_json_file(config);
  const nlohmann::json size =
      json.is_object() && json.contains("quantization_config") && json["quantization_config"].is_object()
          ? json["quantization_config"].value("weight_block_size", nlohmann::json())
          : nlohmann::json();
  if (!size.is_array() || size.size() != 2) return std::nullopt;
  if (!size[0].is_number_integer() || !size[1].is_number_integer()) return std::nullopt;
  const BlockSize block = {size[0].get<std::int64_t>(), size[1].get<std::int64_t>()};
  return block.first > 0 && block.second > 0 ? std::optional(block) : std::nullopt;
}

std::shared_ptr<const WeightScale> WeightScale::of(const io::WeightFiles& files, const io::TensorInfo& weight,
                                                   const std::optional<BlockSize>& block) {
  const io::TensorInfo* scale = io::bytes_of(weight.dtype) == 1 ? files.scale_of(weight.name) : nullptr;
  if (scale == nullptr) return nullptr;
  const std::vector<std::int64_t>& w = weight.shape;
  std::vector<std::int64_t> s = scale->shape;
  auto result = std::make_shared<WeightScale>();
  result->scales_.resize(static_cast<std::size_t>(scale->count()));
  const auto refuse = [&] {
    throw ShapeError(
        "{}: is [{}], and its scale \"{}\" [{}] fits neither the tensor, its rows nor its "
        "blocks; download the model again, or use the unquantized weights",
        weight.name, fmt::join(w, ", "), scale->name, fmt::join(s, ", "));
  };
  if (scale->count() == 1) {
    result->columns_ = result->block_columns_ =
        std::max<std::uint64_t>(1, static_cast<std::uint64_t>(weight.count()));
  } else if (w.size() == 2 && !s.empty() && s.size() <= 2) {
    if (s.size() == 1) s.push_back(1);
    const bool rows = s[0] == w[0] && s[1] == 1;
    const auto said = [&](std::int64_t n) { return block && !rows ? std::optional(n) : std::nullopt; };
    const std::optional<std::int64_t> high = rows ? 1 : block_of(w[0], s[0], said(block ? block->first : 0));
    const std::optional<std::int64_t> wide = block_of(w[1], s[1], said(block ? block->second : 0));
    if (!high || !wide) refuse();
    result->columns_ = static_cast<std::uint64_t>(w[1]);
    result->block_rows_ = static_cast<std::uint64_t>(*high);
    result->block_columns_ = static_cast<std::uint64_t>(*wide);
    result->across_ = static_cast<std::uint64_t>(s[1]);
  } else {
    refuse();
  }
  read_scales(files, *scale, result->scales_);
  return result;
}

template <class T>
void WeightScale::multiply_row(std::uint64_t first, std::size_t n, T* values) const {
  std::uint64_t row = first / columns_, column = first % columns_;
  for (std::size_t i = 0; i < n;) {
    const std::uint64_t block = column / block_columns_;
    const std::uint64_t end = std::min(columns_, (block + 1) * block_columns_);
    const std::size_t count = std::min(n - i, static_cast<std::size_t>(end - column));
    const T scale = static_cast<T>(scales_[row / block_rows_ * across_ + block]);
    for (std::size_t k = 0; k < count; ++k) values[i + k] *= scale;
    i += count;
    column += count;
    if (column == columns_) {
      column = 0;
      ++row;
    }
  }
}

void WeightScale::multiply(std::uint64_t first, std::size_t n, float* values) const {
  multiply_row(first, n, values);
}
void WeightScale::multiply(std::uint64_t first, std::size_t n, double* values) const {
  multiply_row(first, n, values);
}

bool is_scale_name(std::string_view name) {
  static constexpr std::array kEndings = {"_scale_inv", "weight_scale", ".input_scale", ".activation_scale",
                                          ".k_scale",   ".v_scale",     ".output_scale"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace mantissa::convert
