// The weights of a directory: an index with its shards, of either kind, or one file.
#include "bundle.h"
#include "check.h"
#include "mantissa/files/io/model_path.h"
#include "read_tensors.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(checkpoint, fuzz::mutate_bundle) {
  const auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  const fuzz::Folder folder(*files);
  fuzz::expect_only_errors([&] {
    const std::filesystem::path found = io::find_weights(folder.path());
    io::WeightFiles weights(found);
    fuzz::read_tensors(weights);
    const std::string first = weights.tensors().empty() ? "" : weights.tensors().front().name;
    io::WeightFiles some(found, first.substr(0, first.size() / 2));
    fuzz::require(some.tensors().size() <= weights.tensors().size(), "a prefix selects");
    weights.notes();
  });
  fuzz::expect_only_errors([&] { io::open_model(folder.path()); });
  return 0;
}
