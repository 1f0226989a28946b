// The initial values of parameters, in their masters and copies.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/normal.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/engine/runtime/orthogonal.h"
#include "mantissa/engine/runtime/weights.h"
#include "mantissa/kernels/update.h"

namespace mantissa::runtime {
namespace {

/// Computes elements [first, first + values.size()) of a parameter's initial values.
void initial_values(const graph::Init& init, const RandomStream& stream, std::uint64_t first,
                    std::span<double> values, SimdTarget simd) {
  switch (init.kind) {
    case graph::Init::Kind::zeros:
      std::ranges::fill(values, 0);
      break;
    case graph::Init::Kind::ones:
      std::ranges::fill(values, 1);
      break;
    case graph::Init::Kind::uniform:
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = init.std * (2 * uniform(stream, first + i) - 1);
      break;
    case graph::Init::Kind::values:
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = init.value(static_cast<std::int64_t>(first + i));
      break;
    case graph::Init::Kind::orthogonal:  // as a whole: WeightSet::draw
      break;
    case graph::Init::Kind::normal:
      normal_row(stream, first, values.size(), values.data(), simd);
      for (double& x : values) x *= init.std;
      break;
  }
}

}  // namespace

void WeightSet::initialize(std::uint64_t seed) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].fixed) draw(i, seed);
  }
}

void WeightSet::draw(std::size_t parameter, std::uint64_t seed) {
  constexpr std::int64_t kPart = 4096;
  const kernels::Context& ctx = device_->host();
  const Parameter& p = parameters_.at(parameter);
  const plan::Slot& slot = *p.slot;
  if (p.quants) throw InternalError(fmt::format("\"{}\" is quantized, so it has a source", slot.name));
  const RandomStream stream(seed, RandomUse::initial_weights, hash_name(slot.name), 0);
  const std::int64_t count = slot.shape.count();
  std::vector<double> whole;
  if (slot.init.kind == graph::Init::Kind::orthogonal) {
    const std::int64_t columns = slot.shape.last();
    whole = orthogonal_matrix(ctx, stream, count / columns, columns, slot.init.std);
  }
  kernels::parallel_for(ctx, (count + kPart - 1) / kPart, [&](std::int64_t part, int) {
    std::array<double, kPart> values;
    std::array<std::byte, kPart * sizeof(double)> rounded, copied;
    const std::int64_t from = part * kPart;
    const std::int64_t n = std::min(kPart, count - from);
    initial_values(slot.init, stream, static_cast<std::uint64_t>(from),
                   std::span(values).first(static_cast<std::size_t>(n)), kernels::simd_target(ctx.simd));
    if (!whole.empty()) std::copy_n(whole.begin() + from, n, values.begin());
    kernels::cast({.simd = ctx.simd}, n, values.data(), Scalar::f64, rounded.data(), slot.master);
    const auto store = [&](std::byte* to, Scalar type, std::span<const std::byte> elements) {
      const std::size_t width = bytes_of(type);
      device_->upload(to + static_cast<std::size_t>(from) * width,
                      elements.first(static_cast<std::size_t>(n) * width));
    };
    if (p.master != nullptr) store(p.master, slot.master, rounded);
    for (const Copy& c : p.copies) {
      if (c.data == nullptr || c.buffer->is_derived()) continue;
      kernels::cast({.simd = ctx.simd}, n, rounded.data(), slot.master, copied.data(), c.buffer->type);
      store(c.data, c.buffer->type, copied);
    }
  });
  for (const Copy& c : p.copies) {
    if (c.data != nullptr && c.buffer->is_derived()) refresh(p, c);
  }
}

}  // namespace mantissa::runtime
