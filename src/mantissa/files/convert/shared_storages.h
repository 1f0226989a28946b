// The tensors of a checkpoint of PyTorch that share storages, or lie in them with gaps or in another order.
#pragma once

#include <vector>

#include "mantissa/files/convert/inspect.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::convert {

/// Fills in `place` of each tensor. Does nothing for files without storages.
void find_shared_storages(const io::WeightFiles& files, std::vector<InspectedTensor>& tensors);

/// Returns for example "shares the storage of base; strides [1, 6, 2]", or "".
std::string place_text(const TensorPlace& place);

}  // namespace mantissa::convert
