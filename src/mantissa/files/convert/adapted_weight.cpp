#include "mantissa/files/convert/adapted_weight.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/files/convert/pieces.h"
#include "mantissa/kernels/quantize_matrix.h"

namespace mantissa::convert {
namespace {

std::vector<double> read(const io::WeightFiles& files, const std::string& name) {
  std::vector<double> values(static_cast<std::size_t>(files.find(name)->count()));
  files.read_f64(name, values);
  return values;
}

std::vector<double> transposed(const std::vector<double>& m, std::size_t rows, std::size_t columns) {
  std::vector<double> out(m.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < columns; ++c) out[c * rows + r] = m[r * columns + c];
  }
  return out;
}

}  // namespace

template <class Visit>
void AdaptedWeight::for_rows(std::uint64_t first, std::size_t n, const Visit& visit) const {
  for (std::size_t i = 0; i < n;) {
    const std::uint64_t at = first + i, column = at % columns_;
    const std::size_t count = std::min(n - i, static_cast<std::size_t>(columns_ - column));
    visit(static_cast<std::size_t>(at / columns_), static_cast<std::size_t>(column), i, count);
    i += count;
  }
}

AdaptedWeight::AdaptedWeight(const model::LinearLayer& layer, const model::Adapter& adapter,
                             const io::WeightFiles& tensors, const io::WeightFiles& base,
                             const std::string& name, std::optional<QuantFormat> blocks,
                             const kernels::Context& ctx)
    : rows_(static_cast<std::uint64_t>(layer.in_out ? layer.in : layer.out)),
      columns_(static_cast<std::uint64_t>(layer.in_out ? layer.out : layer.in)),
      format_(blocks),
      outputs_are_columns_(layer.in_out) {
  if (format_) quantize(base, name, ctx);
  if (adapter.find(layer.scope) == nullptr) return;
  read_adapter(layer, adapter, tensors);
  if (!adapter.dora) return;
  const auto in = static_cast<std::size_t>(layer.in), out = static_cast<std::size_t>(layer.out);
  // The squares of each piece are added in order, so that threads change no bit.
  const auto squares = over_pieces<std::vector<double>>(
      ctx, static_cast<std::uint64_t>(in * out), [&](std::uint64_t first, std::size_t n) {
        std::vector<double> values(n), sums(out);
        const io::TensorInfo& info = *base.find(name);
        std::vector<std::byte> stored(n * io::bytes_of(info.dtype));
        base.read(name, stored, first * io::bytes_of(info.dtype));
        load_row(stored.data(), *io::scalar_of(info.dtype), 0, n, values.data());
        hold(first, n, values.data());
        add(first, n, values.data());
        for_rows(first, n, [&](std::size_t row, std::size_t column, std::size_t begin, std::size_t count) {
          for (std::size_t i = 0; i < count; ++i)
            sums[outputs_are_columns_ ? column + i : row] += values[begin + i] * values[begin + i];
        });
        return sums;
      });
  factors_ = read(tensors, layer.scope + std::string(model::kMagnitude) + ".weight");
  for (std::size_t o = 0; o < out; ++o) {
    double norm = 0;
    for (const std::vector<double>& piece : squares) norm += piece[o];
    if (norm > 0) factors_[o] /= std::sqrt(norm);
  }
}

void AdaptedWeight::read_adapter(const model::LinearLayer& layer, const model::Adapter& adapter,
                                 const io::WeightFiles& tensors) {
  const model::AdapterLayer& of = *adapter.find(layer.scope);
  const auto in = static_cast<std::size_t>(layer.in), out = static_cast<std::size_t>(layer.out);
  rank_ = static_cast<std::size_t>(of.rank);
  const auto tensor = [&](std::string_view part) {
    return read(tensors, layer.scope + std::string(part) + ".weight");
  };
  const std::vector<double> a = tensor(model::kLoraA), b = tensor(model::kLoraB);
  left_ = layer.in_out ? transposed(a, rank_, in) : b;
  right_ = layer.in_out ? transposed(b, out, rank_) : a;
  const double s = adapter.scale(of);
  for (double& x : left_) x *= s;
}

void AdaptedWeight::quantize(const io::WeightFiles& base, const std::string& name,
                             const kernels::Context& ctx) {
  const std::vector<double> stored = read(base, name);
  const std::vector<float> values(stored.begin(), stored.end());
  const auto outputs = static_cast<std::size_t>(outputs_are_columns_ ? columns_ : rows_),
             inputs = values.size() / outputs;
  blocks_.resize(quant_bytes(*format_, outputs, inputs));
  kernels::quantize_matrix(ctx, {*format_, outputs, inputs, blocks_.data()}, values, outputs_are_columns_);
}

void AdaptedWeight::hold(std::uint64_t first, std::size_t n, double* values) const {
  if (!format_) return;
  const auto outputs = static_cast<std::size_t>(outputs_are_columns_ ? columns_ : rows_),
             inputs = static_cast<std::size_t>(outputs_are_columns_ ? rows_ : columns_);
  const QuantRows rows = quant_rows(*format_, blocks_.data(), outputs, inputs);
  std::vector<float> piece(n);
  for_rows(first, n, [&](std::size_t row, std::size_t column, std::size_t begin, std::size_t count) {
    if (outputs_are_columns_) {
      for (std::size_t i = 0; i < count; ++i) dequantize(rows, column + i, row, 1, &piece[begin + i]);
    } else {
      dequantize(rows, row, column, count, &piece[begin]);
    }
  });
  std::ranges::copy(piece, values);
}

void AdaptedWeight::add(std::uint64_t first, std::size_t n, double* values) const {
  for_rows(first, n, [&](std::size_t row, std::size_t column, std::size_t begin, std::size_t count) {
    for (std::size_t k = 0; k < rank_; ++k) {
      const double factor = left_[row * rank_ + k];
      const double* from = right_.data() + k * columns_ + column;
      for (std::size_t i = 0; i < count; ++i) values[begin + i] += factor * from[i];
    }
  });
}

void AdaptedWeight::apply(std::uint64_t first, std::size_t n, double* values) const {
  add(first, n, values);
  if (factors_.empty()) return;
  for_rows(first, n, [&](std::size_t row, std::size_t column, std::size_t begin, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      values[begin + i] *= factors_[outputs_are_columns_ ? column + i : row];
  });
}

void MergeLoss::add(const double* before, const double* exact, const double* stored_before,
                    const double* stored, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const double d = exact[i] - before[i], error = stored[i] - exact[i];
    change += d * d;
    lost += error * error;
    changed += d != 0 ? 1 : 0;
    vanished += d != 0 && stored[i] == stored_before[i] ? 1 : 0;
  }
}

void MergeLoss::merge(const MergeLoss& other) {
  change += other.change;
  lost += other.lost;
  changed += other.changed;
  vanished += other.vanished;
}

double MergeLoss::share() const {
  return change > 0 ? std::sqrt(lost / change) : 0;
}

double MergeLoss::vanished_share() const {
  return changed > 0 ? static_cast<double>(vanished) / static_cast<double>(changed) : 0;
}

}  // namespace mantissa::convert
