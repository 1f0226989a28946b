// A GGUF file: the header is checked completely, small tensors can be read, and the model it describes is
// opened or refused.
#include <vector>

#include "check.h"
#include "mantissa/files/gguf/file_tensors.h"
#include "mantissa/files/gguf/foreign_model.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(gguf, fuzz::mutate_gguf) {
  constexpr std::uint64_t kSmall = 1 << 16;
  const fuzz::MemoryFile memory(data, size);
  const auto read_all = [&](const io::TensorSource& source) {
    for (const io::TensorInfo& tensor : source.tensors()) {
      if (tensor.end > kSmall) continue;
      std::vector<std::byte> values(tensor.end);
      source.read(tensor, values, 0);
    }
  };
  fuzz::expect_only_errors([&] {
    const auto file = std::make_shared<const gguf::GgufFile>(memory.path());
    for (const gguf::FileTensor& tensor : file->tensors()) {
      fuzz::require(tensor.bytes <= size && tensor.begin <= size - tensor.bytes,
                    "a tensor lies within the file");
      fuzz::require(file->data(tensor).size() == tensor.bytes, "a tensor has its bytes");
      fuzz::require(file->find(tensor.name) == &tensor, "a tensor is found by its name");
    }
    read_all(gguf::FileTensors(file));
    read_all(*gguf::open_model(file, {}).weights);
  });
  return 0;
}
