// A checkpoint's directory, converted to every layout. A file that is written can be read.
#include "bundle.h"
#include "check.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/convert/convert.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "read_tensors.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(convert, fuzz::mutate_bundle) {
  static const auto device = runtime::open_device({.threads = 1});
  const auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  const fuzz::Folder folder(*files), out;
  const auto convert = [&](convert::Request request) {
    bool written = false;
    fuzz::expect_only_errors([&] {
      request.in = io::open_model(folder.path());
      written = convert::convert(request, device->host()).has_value();
    });
    bool read = !written;
    fuzz::expect_only_errors([&] {
      if (!written) return;
      if (request.layout == convert::Layout::gguf) {
        const gguf::GgufFile file(request.out);
        fuzz::require(!file.tensors().empty(), "a model has tensors");
      } else {
        io::WeightFiles weights(io::find_weights(request.out));
        fuzz::read_tensors(weights);
      }
      read = true;
    });
    fuzz::require(read, "a converted checkpoint can be read");
  };
  convert({.in = {}, .out = out.path() / "a", .change = {.format = Scalar::bf16}});
  convert({.in = {}, .out = out.path() / "b", .change = {}, .layout = convert::Layout::pth});
  convert({.in = {},
           .out = out.path() / "c.gguf",
           .change = {.format = Scalar::f32},
           .layout = convert::Layout::gguf});
  return 0;
}
