// Weights that a program reads in the quantized blocks of their file.
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/engine/runtime/weights.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::weights {

class QuantizedViews {
 public:
  /// `program` does not train these weights, and outlives the views.
  explicit QuantizedViews(const plan::Program& program);

  /// Returns views of all that steps read of a slot, if the tensor `tensor` of `files` is stored in quantized
  /// blocks and the steps can read them with the bits of the dequantized weight. Returns nothing otherwise.
  std::vector<runtime::WeightSet::View> of(const plan::Slot& slot, const io::WeightFiles& files,
                                           std::string_view tensor) const;

 private:
  bool takes(const plan::Slot& slot, plan::BufferId id, bool transposed) const;

  const plan::Program& program_;
  std::vector<bool> read_;  // by buffer
  std::vector<runtime::QuantizedReads> quantized_;
};

/// Returns true if all values of a view of `elements` elements in quantized blocks are finite.
bool is_finite(const runtime::WeightSet::View& view, std::int64_t elements, const runtime::Device& device);

}  // namespace mantissa::weights
