#include "mantissa/setup/weights/quantize_frozen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/kernels/quantize_matrix.h"
#include "mantissa/kernels/update.h"

namespace mantissa::weights {
namespace {

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

}  // namespace

bool is_quantized(const runtime::WeightSet& weights, std::size_t slot) {
  const plan::Program& program = weights.program();
  return program.buffer(program.slots[slot].master_buffer).quants.has_value();
}

void QuantizationErrors::add(QuantFormat format, const ErrorStats& errors, std::size_t bytes) {
  Sum& sum = sums_[format];
  sum.errors.merge(errors);
  sum.bytes += bytes;
}

std::vector<std::string> QuantizationErrors::notes() const {
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

void quantize_frozen(runtime::WeightSet& weights, std::size_t slot, std::span<const float> values,
                     QuantizationErrors& errors) {
  const runtime::Device& device = weights.device();
  const Held held(weights, slot);
  const QuantizedMatrix& quants = *held.buffer.quants;
  std::vector<std::byte> staging;
  std::byte* memory = device.host_pointer(held.data);
  if (memory == nullptr) {
    staging.resize(held.bytes());
    memory = staging.data();
  }
  const ErrorStats lost = kernels::quantize_matrix(
      device.host(), {quants.format, held.rows, held.width, reinterpret_cast<std::uint8_t*>(memory)}, values,
      quants.transposed);
  errors.add(quants.format, lost, held.bytes());
  if (!staging.empty()) device.upload(held.data, staging);
}

void read_quantized(const runtime::WeightSet& weights, std::size_t slot, std::int64_t first, Scalar format,
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

}  // namespace mantissa::weights
