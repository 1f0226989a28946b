// The directory of a run that ended, compared with a second one: config.toml, metrics.jsonl, summary.json and
// the list of its files. Names with the prefix "b-" are of the second run; "owned.json" is the list.
#include "bundle.h"
#include "check.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/lab/compare/directories.h"
#include "mantissa/lab/diff/diff.h"
#include "mantissa/report/summary.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(run_directory, fuzz::mutate_bundle) {
  static const auto device = runtime::open_device({.threads = 1});
  const auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  const fuzz::Folder a, b;
  for (const fuzz::BundledFile& file : *files) {
    const bool second = file.name.starts_with("b-");
    const std::string name = file.name.substr(second ? 2 : 0);
    if (!name.empty()) (second ? b : a).write(name == "owned.json" ? ".mantissa.json" : name, file.bytes);
  }
  fuzz::expect_only_errors([&] { disk::owned_names(a.path()); });
  fuzz::expect_only_errors([&] { disk::check_replaceable(a.path(), ""); });
  fuzz::expect_only_errors([&] {
    const std::filesystem::path both[] = {a.path(), b.path()};
    const lab::Comparison comparison = lab::compare_directories(both, *device);
    fuzz::require(comparison.runs.size() + comparison.reseeded.size() == 2, "both runs are compared");
    lab::to_text(comparison);
    lab::to_json(comparison);
  });
  fuzz::expect_only_errors([&] {
    const lab::Diff diff = lab::diff(a.path(), b.path(), false, *device);
    lab::to_text(diff, 10);
    lab::to_json(diff);
  });
  fuzz::expect_only_errors(
      [&] { fuzz::require(lab::diff(a.path(), a.path(), true, *device).equal(), "a run equals itself"); });
  return 0;
}
