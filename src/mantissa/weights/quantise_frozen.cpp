#include "mantissa/weights/quantise_frozen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/io/hash.h"
#include "mantissa/kernels/update.h"
#include "mantissa/numeric/quantize_rows.h"

namespace mantissa::weights {
namespace {

/// Elements of the rows that one task quantises or reads, about.
constexpr std::size_t kPart = std::size_t{1} << 16;

/// The blocks of a slot.
struct Held {
  const plan::Buffer& buffer;
  std::byte* data;
  std::size_t rows, width;  // of blocks

  Held(const runtime::WeightSet& weights, std::size_t slot)
      : buffer(weights.program().buffer(weights.program().slots[slot].master_buffer)),
        data(weights.find(weights.program(), weights.program().slots[slot].master_buffer)),
        rows(static_cast<std::size_t>(buffer.shape.leading())),
        width(static_cast<std::size_t>(buffer.shape.last())) {
    if (buffer.quants->transposed) std::swap(rows, width);
  }
  std::size_t bytes() const { return quant_bytes(buffer.quants->format, rows, width); }
};

/// Returns the transposed matrix of `values` [rows, width].
std::vector<float> transposed(std::span<const float> values, std::size_t rows, std::size_t width,
                              const runtime::Device& device) {
  std::vector<float> to(values.size());
  device.parallel_for(static_cast<std::int64_t>(width), [&](std::int64_t column, int) {
    const auto c = static_cast<std::size_t>(column);
    for (std::size_t r = 0; r < rows; ++r) to[c * rows + r] = values[r * width + c];
  });
  return to;
}

}  // namespace

bool is_quantised(const runtime::WeightSet& weights, std::size_t slot) {
  const plan::Program& program = weights.program();
  return program.buffer(program.slots[slot].master_buffer).quants.has_value();
}

void QuantisationErrors::add(QuantFormat format, const ErrorStats& errors, std::size_t bytes) {
  Sum& sum = sums_[format];
  sum.errors.merge(errors);
  sum.bytes += bytes;
}

std::vector<std::string> QuantisationErrors::notes() const {
  std::vector<std::string> notes;
  for (const auto& [format, sum] : sums_) {
    const double relative = sum.errors.relative();
    notes.push_back(fmt::format(
        "frozen weights in {}: {:.3f} bits per weight, {}", traits(format).name,
        8 * static_cast<double>(sum.bytes) / static_cast<double>(sum.errors.count),
        relative > 0 ? fmt::format("SNR {:.1f} dB", -20 * std::log10(relative)) : std::string("no error")));
  }
  return notes;
}

void quantise_frozen(runtime::WeightSet& weights, std::size_t slot, std::span<const float> values,
                     QuantisationErrors& errors) {
  const runtime::Device& device = weights.device();
  const Held held(weights, slot);
  const QuantFormat format = held.buffer.quants->format;
  std::vector<float> turned;
  if (held.buffer.quants->transposed) {
    turned = transposed(values, held.width, held.rows, device);
    values = turned;
  }
  std::vector<std::byte> staging;
  std::byte* memory = device.host_pointer(held.data);
  if (memory == nullptr) {
    staging.resize(held.bytes());
    memory = staging.data();
  }
  const QuantMatrix to{format, held.rows, held.width, reinterpret_cast<std::uint8_t*>(memory)};
  const std::size_t codes = quant_bytes(format, held.rows * held.width);
  std::fill(memory + codes, memory + quant_scales_begin(format, held.rows, held.width), std::byte{0});
  const std::size_t row_scales = quant_scales(format, 1, held.width);
  std::vector<float> scales(format == QuantFormat::nf4_double ? held.rows * row_scales : 0);
  const std::size_t step = std::max<std::size_t>(1, kPart / held.width);
  const auto parts = static_cast<std::int64_t>((held.rows + step - 1) / step);
  const auto for_parts = [&](const auto& body) {
    device.parallel_for(parts, [&](std::int64_t part, int) {
      const std::size_t first = static_cast<std::size_t>(part) * step;
      body(static_cast<std::size_t>(part), first, std::min(step, held.rows - first));
    });
  };
  for_parts([&](std::size_t, std::size_t first, std::size_t n) {
    quantize_rows(to, first, n, values.data() + first * held.width,
                  scales.empty() ? nullptr : scales.data() + first * row_scales);
  });
  if (!scales.empty()) quantize_scales(to, scales);
  std::vector<ErrorStats> lost(static_cast<std::size_t>(parts));
  for_parts([&](std::size_t part, std::size_t first, std::size_t n) {
    const QuantRows rows = quant_rows(format, memory, held.rows, held.width);
    std::vector<float> after(held.width);
    for (std::size_t r = first; r < first + n; ++r) {
      dequantize(rows, r, 0, held.width, after.data());
      lost[part].add_row(values.data() + r * held.width, after.data(), held.width, Scalar::f32);
    }
  });
  ErrorStats all;
  for (const ErrorStats& part : lost) all.merge(part);
  errors.add(format, all, held.bytes());
  if (!staging.empty()) device.upload(held.data, staging);
}

void read_quantised(const runtime::WeightSet& weights, std::size_t slot, std::int64_t first, Scalar format,
                    std::span<std::byte> out) {
  const runtime::Device& device = weights.device();
  const Held held(weights, slot);
  std::vector<std::byte> staging;
  const std::span<const std::byte> blocks = device.view(held.data, held.bytes(), staging);
  const QuantRows rows = quant_rows(held.buffer.quants->format, blocks.data(), held.rows, held.width);
  const bool turned = held.buffer.quants->transposed;
  const std::size_t n = out.size() / bytes_of(format), begin = static_cast<std::size_t>(first),
                    width = turned ? held.rows : held.width;
  std::vector<float> values(n);
  // Pieces of rows of the matrix. A row of the transposed blocks is a column.
  for (std::size_t i = 0; i < n;) {
    const std::size_t row = (begin + i) / width, at = (begin + i) % width,
                      count = std::min(n - i, width - at);
    if (turned) {
      for (std::size_t j = 0; j < count; ++j) dequantize(rows, at + j, row, 1, &values[i + j]);
    } else {
      dequantize(rows, row, at, count, &values[i]);
    }
    i += count;
  }
  std::vector<std::byte> master(n * bytes_of(held.buffer.type));
  const auto count = static_cast<std::int64_t>(n);
  kernels::cast(device.host(), count, values.data(), Scalar::f32, master.data(), held.buffer.type);
  kernels::cast(device.host(), count, master.data(), held.buffer.type, out.data(), format);
}

std::string hash_of_quantised(const runtime::WeightSet& weights) {
  io::Hash64 hash;
  bool any = false;
  for (std::size_t i = 0; i < weights.program().slots.size(); ++i) {
    if (!is_quantised(weights, i)) continue;
    any = true;
    const Held held(weights, i);
    const std::string name =
        fmt::format("{} {}\n", held.buffer.name, traits(held.buffer.quants->format).name);
    hash.update(std::as_bytes(std::span(name)));
    std::vector<std::byte> staging;
    hash.update(weights.device().view(held.data, held.bytes(), staging));
  }
  return any ? io::hex(hash.digest()) : std::string();
}

}  // namespace mantissa::weights
