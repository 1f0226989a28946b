// The values of a pickle that holds tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/files/io/dtype.h"

namespace mantissa::io::pth {

/// A tensor as a view of a storage, in elements.
struct PickledTensor {
  std::string_view storage;         // its key: the contents are the archive's entry "data/KEY"
  std::uint64_t storage_bytes = 0;  // as the pickle declares them
  Dtype dtype = Dtype::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape, strides;  // of one length; not negative
  // Its elements are those of the storage negated, or conjugated: PyTorch computes that when they are read.
  bool negated = false, conjugated = false;
};

struct Value {
  enum class Kind : std::uint8_t {
    none,
    boolean,
    integer,
    other,  // a number or an object without tensors: a float, a long integer, a device
    text,
    bytes,
    list,
    tuple,
    set,
    dict,
    ordered_dict,
    global,  // a name that may be called, or the type of a storage
    dtype,
    storage,
    tensor
  };
  Kind kind = Kind::none;
  Dtype dtype = Dtype::u8;      // dtype, storage
  std::int64_t integer = 0;     // boolean, integer; index of a global or a tensor; bytes of a storage
  std::string_view text;        // text; key of a storage. Part of the pickle
  std::vector<Value*> items{};  // of containers; of a dict, keys and values in turn

  bool is_dict() const { return kind == Kind::dict || kind == Kind::ordered_dict; }
};

struct Pickle {
  std::deque<Value> values;  // all of them; a deque, since values point to each other
  std::vector<PickledTensor> tensors;
  const Value* root = nullptr;
};

/// Parses a pickle of protocols 0 to 5. Values may contain themselves. Nothing is run: containers, numbers,
/// strings and PyTorch's tensors are known, and any other callable is refused by its name. Lengths, counts
/// and the memo are checked; a pickle has at most 64 MiB and 4 Mi values. `bytes` must outlive the result.
/// Throws FileError with `where` as the file's name.
Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& where);

}  // namespace mantissa::io::pth
