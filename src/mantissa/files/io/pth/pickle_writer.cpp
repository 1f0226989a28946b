#include "mantissa/files/io/pth/pickle_writer.h"

#include <fmt/format.h>

#include <concepts>
#include <limits>

#include "mantissa/files/io/pth/globals.h"
#include "mantissa/files/io/safetensors_header.h"

namespace mantissa::io::pth {
namespace {

class Pickler {
 public:
  std::string run(std::span<const TensorToWrite> tensors) {
    out_ = "\x80\x02";  // PROTO 2
    ordered_dict();
    out_ += '(';
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      text(tensors[i].name);
      tensor(tensors[i], i);
    }
    out_ += "u.";  // SETITEMS, STOP
    return std::move(out_);
  }

 private:
  template <std::integral T>
  void raw(T x) {
    out_.append(reinterpret_cast<const char*>(&x), sizeof(x));
  }

  void text(std::string_view x) {
    out_ += 'X';
    raw(static_cast<std::uint32_t>(x.size()));
    out_ += x;
  }

  void integer(std::int64_t x) {
    if (x <= std::numeric_limits<std::uint8_t>::max()) {
      out_ += 'K';
      raw(static_cast<std::uint8_t>(x));
    } else if (x <= std::numeric_limits<std::int32_t>::max()) {
      out_ += 'J';
      raw(static_cast<std::int32_t>(x));
    } else {
      out_ += "\x8a\x08";  // LONG1 of 8 bytes
      raw(x);
    }
  }

  void global(std::string_view module, std::string_view name) {
    out_ += fmt::format("c{}\n{}\n", module, name);
  }

  void ordered_dict() {
    global("collections", "OrderedDict");
    out_ += ")R";
  }

  void tuple(std::span<const std::int64_t> items) {
    out_ += '(';
    for (const std::int64_t item : items) integer(item);
    out_ += 't';
  }

  void storage(std::uint64_t bytes, Dtype dtype, std::size_t key) {
    out_ += '(';
    text("storage");
    const std::string_view type = storage_name(dtype);
    if (type.empty()) {
      global("torch.storage", "UntypedStorage");
    } else {
      global("torch", type);
      bytes /= bytes_of(dtype);
    }
    text(fmt::to_string(key));
    text("cpu");
    integer(static_cast<std::int64_t>(bytes));
    out_ += "tQ";
  }

  void tensor(const TensorToWrite& tensor, std::size_t key) {
    const bool typed = storage_name(tensor.dtype).empty();
    global("torch._utils", typed ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
    out_ += '(';
    storage(byte_size(tensor.shape, tensor.dtype).value_or(0), tensor.dtype, key);
    integer(0);
    tuple(tensor.shape);
    std::vector<std::int64_t> strides(tensor.shape.size());
    std::int64_t stride = 1;
    for (std::size_t d = strides.size(); d-- > 0; stride *= std::max<std::int64_t>(1, tensor.shape[d]))
      strides[d] = stride;
    tuple(strides);
    out_ += '\x89';  // requires_grad: false
    ordered_dict();  // of hooks
    if (typed) global("torch", dtype_name(tensor.dtype));
    out_ += "tR";
  }

  std::string out_;
};

}  // namespace

std::string pickle_of(std::span<const TensorToWrite> tensors) {
  return Pickler().run(tensors);
}

}  // namespace mantissa::io::pth
