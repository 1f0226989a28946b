#include "mantissa/files/io/pth/globals.h"

#include <algorithm>
#include <array>

namespace mantissa::io::pth {
namespace {

struct Known {
  std::string_view module, name;
  Global global;
};
constexpr std::array kKnown = {
    Known{"collections", "OrderedDict", Global::ordered_dict},
    Known{"__builtin__", "set", Global::set},
    Known{"builtins", "set", Global::set},
    Known{"__builtin__", "frozenset", Global::frozen_set},
    Known{"builtins", "frozenset", Global::frozen_set},
    Known{"__builtin__", "bytes", Global::bytes},
    Known{"builtins", "bytes", Global::bytes},
    Known{"__builtin__", "bytearray", Global::bytearray},
    Known{"builtins", "bytearray", Global::bytearray},
    Known{"_codecs", "encode", Global::encode},
    Known{"torch", "Size", Global::size},
    Known{"torch", "device", Global::device},
    Known{"torch._utils", "_rebuild_tensor_v2", Global::rebuild_tensor},
    Known{"torch._utils", "_rebuild_tensor_v3", Global::rebuild_tensor_typed},
    Known{"torch._utils", "_rebuild_parameter", Global::rebuild_parameter},
};

struct TorchDtype {
  Dtype dtype;
  std::string_view name, storage;
};
constexpr std::array kDtypes = {
    TorchDtype{Dtype::f64, "float64", "DoubleStorage"},
    TorchDtype{Dtype::f32, "float32", "FloatStorage"},
    TorchDtype{Dtype::bf16, "bfloat16", "BFloat16Storage"},
    TorchDtype{Dtype::f16, "float16", "HalfStorage"},
    TorchDtype{Dtype::e4m3, "float8_e4m3fn", ""},
    TorchDtype{Dtype::e5m2, "float8_e5m2", ""},
    TorchDtype{Dtype::i64, "int64", "LongStorage"},
    TorchDtype{Dtype::i32, "int32", "IntStorage"},
    TorchDtype{Dtype::i16, "int16", "ShortStorage"},
    TorchDtype{Dtype::i8, "int8", "CharStorage"},
    TorchDtype{Dtype::u8, "uint8", "ByteStorage"},
    TorchDtype{Dtype::boolean, "bool", "BoolStorage"},
    TorchDtype{Dtype::u64, "uint64", ""},
    TorchDtype{Dtype::u32, "uint32", ""},
    TorchDtype{Dtype::u16, "uint16", ""},
    TorchDtype{Dtype::c64, "complex64", "ComplexFloatStorage"},
    TorchDtype{Dtype::e8m0, "float8_e8m0fnu", ""},
    TorchDtype{Dtype::e4m3fnuz, "float8_e4m3fnuz", ""},
    TorchDtype{Dtype::e5m2fnuz, "float8_e5m2fnuz", ""},
};

const TorchDtype& row(Dtype dtype) {
  return *std::ranges::find(kDtypes, dtype, &TorchDtype::dtype);
}

}  // namespace

std::optional<FoundGlobal> find_global(std::string_view module, std::string_view name) {
  for (const Known& known : kKnown) {
    if (known.module == module && known.name == name) return FoundGlobal{known.global};
  }
  if (module != "torch" && module != "torch.storage") return std::nullopt;
  if (name == "UntypedStorage") return FoundGlobal{Global::storage};
  if (module != "torch" || name.empty()) return std::nullopt;
  for (const TorchDtype& type : kDtypes) {
    if (name == type.storage) return FoundGlobal{Global::storage, type.dtype};
    if (name == type.name) return FoundGlobal{Global::dtype, type.dtype};
  }
  return std::nullopt;
}

std::string_view dtype_name(Dtype dtype) {
  return row(dtype).name;
}
std::string_view storage_name(Dtype dtype) {
  return row(dtype).storage;
}

}  // namespace mantissa::io::pth
