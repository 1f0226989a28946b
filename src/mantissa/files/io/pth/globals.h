// The names that a pickle of tensors may refer to.
#pragma once

#include <optional>
#include <string_view>

#include "mantissa/files/io/dtype.h"

namespace mantissa::io::pth {

enum class Global {
  ordered_dict,
  set,
  frozen_set,
  bytes,
  bytearray,
  encode,  // how protocol 2 writes bytes
  size,
  device,
  rebuild_tensor,        // (storage, offset, shape, strides, …)
  rebuild_tensor_typed,  // the same with a dtype, for storages without one
  rebuild_parameter,
  storage,
  dtype
};

struct FoundGlobal {
  Global global;
  Dtype dtype = Dtype::u8;  // of a storage's elements (U8 if untyped), or the dtype itself
};

/// Returns the meaning of `module`.`name`, or null if it is not known.
std::optional<FoundGlobal> find_global(std::string_view module, std::string_view name);

/// Return PyTorch's names for tensors of `dtype`: "float8_e4m3fn", and of its storage, which is "" for the
/// types without one ("FloatStorage").
std::string_view dtype_name(Dtype dtype);
std::string_view storage_name(Dtype dtype);

}  // namespace mantissa::io::pth
