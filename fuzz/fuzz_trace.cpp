// Two traces, compared: the files a.safetensors and b.safetensors.
#include "bundle.h"
#include "check.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/lab/diff/diff.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(trace, fuzz::mutate_bundle) {
  static const auto device = runtime::open_device({.threads = 1});
  const auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  const fuzz::Folder folder(*files);
  const std::filesystem::path a = folder.path() / "a.safetensors", b = folder.path() / "b.safetensors";
  for (const bool bitwise : {false, true}) {
    for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
      fuzz::expect_only_errors([&] {
        const lab::Diff diff = lab::diff(first, second, bitwise, *device);
        lab::verdict(diff);
        lab::trace_verdicts(diff);
        lab::to_text(diff, 10);
        lab::to_json(diff);
      });
    }
  }
  fuzz::expect_only_errors(
      [&] { fuzz::require(lab::diff(a, a, true, *device).equal(), "a trace equals itself"); });
  return 0;
}
