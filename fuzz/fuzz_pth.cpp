// A checkpoint of PyTorch, and its pickle alone: the file is checked completely, and every tensor of an
// accepted one can be read, also those of a model of RWKV-LM under their Hugging Face names.
#include <vector>

#include "check.h"
#include "mantissa/files/io/pth/state_dict.h"
#include "mantissa/files/io/pth/torch_file.h"
#include "mantissa/files/rwkv/checkpoint.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(pth, fuzz::mutate_pth) {
  constexpr std::uint64_t kSmall = 1 << 16;
  fuzz::expect_only_errors([&] {
    const io::pth::Pickle pickle = io::pth::parse_pickle(std::as_bytes(std::span(data, size)), "input");
    fuzz::require(pickle.root != nullptr, "a pickle has a value");
    io::pth::state_dict_of(pickle, "input");
  });
  const fuzz::MemoryFile memory(data, size);
  fuzz::expect_only_errors([&] {
    const io::pth::TorchFile file(memory.path());
    for (const io::TensorInfo& tensor : file.tensors()) {
      if (tensor.end > kSmall) continue;
      std::vector<std::byte> values(tensor.end);
      file.read(tensor, values, 0);
      const std::span<const std::byte> view = file.in_memory(tensor);
      fuzz::require(view.empty() || std::equal(view.begin(), view.end(), values.begin(), values.end()),
                    "a view has the bytes that are read");
    }
  });
  fuzz::expect_only_errors([&] {
    const rwkv::Checkpoint model = rwkv::open_checkpoint(io::WeightFiles(memory.path()), memory.path());
    for (const io::TensorInfo& tensor : model.weights->tensors()) {
      if (tensor.end > kSmall) continue;
      std::vector<std::byte> values(tensor.end);
      model.weights->read(tensor, values, 0);
      const std::span<const std::byte> view = model.weights->in_memory(tensor);
      fuzz::require(view.empty() || std::equal(view.begin(), view.end(), values.begin(), values.end()),
                    "a view of a weight has the bytes that are read");
    }
  });
  return 0;
}
