// The directory of an adapter in PEFT's layout: adapter_config.json with the weights as safetensors or as a
// checkpoint of PyTorch, read for a small model.
#include "bundle.h"
#include "check.h"
#include "mantissa/files/peft/config.h"
#include "mantissa/files/peft/reader.h"
#include "read_tensors.h"
#include "small_model.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(adapter, fuzz::mutate_bundle) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  peft::glob_of_regex(input);
  const auto files = fuzz::parse_bundle(input);
  if (!files) return 0;
  const fuzz::Folder folder(*files);
  fuzz::expect_only_errors([&] {
    const peft::PeftAdapter adapter = peft::read_adapter(folder.path(), fuzz::small_model());
    fuzz::require(!adapter.tensors->tensors().empty(), "an adapter has tensors");
    io::WeightFiles weights(adapter.tensors);
    fuzz::read_tensors(weights);
  });
  return 0;
}
