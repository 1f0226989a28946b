// The weight of a linear layer with its adapter added (engine/model/adapter.h), and of one whose base was
// held in quantized blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/core/numeric/quants.h"
#include "mantissa/engine/model/adapter.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// W' = W + s·B·A, for DoRA with each row times m / ‖W + s·B·A‖, in f64. W is the weight of the file, or its
/// value in quantized blocks.
class AdaptedWeight {
 public:
  /// Reads the adapter of `layer` from `tensors`, named as the graph's parameters, if it has one. For DoRA
  /// and with `blocks`, the format that held W, reads all of the weight `name` of `base` too. Throws
  /// FileError.
  AdaptedWeight(const model::LinearLayer& layer, const model::Adapter& adapter,
                const io::WeightFiles& tensors, const io::WeightFiles& base, const std::string& name,
                std::optional<QuantFormat> blocks, const kernels::Context& ctx);

  /// Replaces values[i], element first + i of the file's weight, by W, for i < n.
  void hold(std::uint64_t first, std::size_t n, double* values) const;
  /// Replaces values[i], element first + i of W in the layout of its file, by those of W', for i < n.
  void apply(std::uint64_t first, std::size_t n, double* values) const;

 private:
  /// Calls visit(row, column, begin, count) for the parts of rows in elements [first, first + n).
  template <class Visit>
  void for_rows(std::uint64_t first, std::size_t n, const Visit& visit) const;
  void add(std::uint64_t first, std::size_t n, double* values) const;
  void read_adapter(const model::LinearLayer& layer, const model::Adapter& adapter,
                    const io::WeightFiles& tensors);
  void quantize(const io::WeightFiles& base, const std::string& name, const kernels::Context& ctx);

  std::uint64_t rows_ = 1, columns_ = 1;  // of the weight as it is stored
  std::size_t rank_ = 0;                  // 0: no adapter
  std::optional<QuantFormat> format_;     // of the blocks
  std::vector<std::uint8_t> blocks_;      // whose rows are outputs; empty: W is the weight of the file
  // s·B·A as left [rows, rank] · right [rank, columns], for the stored layout
  std::vector<double> left_, right_;
  std::vector<double> factors_;  // of DoRA, for each output
  bool outputs_are_columns_ = false;
};

/// The losses of rounding an adapted weight: of the changes W' − W, and of the elements that change.
struct MergeLoss {
  double change = 0;                        // Σ (W' − W)²
  double lost = 0;                          // Σ (rounded(W') − W')²
  std::uint64_t changed = 0, vanished = 0;  // W' ≠ W; of these, rounded(W') = rounded(W)

  /// Adds `n` elements: W, W', and both as they are stored.
  void add(const double* before, const double* exact, const double* stored_before, const double* stored,
           std::size_t n);
  void merge(const MergeLoss& other);
  /// Returns √(lost / change), the norm of the rounding errors as a share of that of the adapter's change. 0
  /// without a change.
  double share() const;
  double vanished_share() const;
};

}  // namespace mantissa::convert
