// A safetensors file: the reader checks the complete header, and every small tensor can be read.
#include <vector>

#include "check.h"
#include "mantissa/files/io/safetensors.h"
#include "memory_file.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(safetensors, fuzz::mutate_safetensors) {
  constexpr std::uint64_t kSmall = 1 << 16;
  const fuzz::MemoryFile file(data, size);
  fuzz::expect_only_errors([&] {
    const io::SafetensorsReader reader(file.path());
    for (const io::TensorInfo& tensor : reader.tensors()) {
      const std::uint64_t bytes = tensor.end - tensor.begin;
      fuzz::require(tensor.begin <= tensor.end && tensor.end <= size, "a tensor lies within the file");
      fuzz::require(static_cast<std::uint64_t>(tensor.count()) * io::bytes_of(tensor.dtype) == bytes,
                    "a tensor's shape and bytes agree");
      fuzz::require(reader.find(tensor.name) == &tensor, "a tensor is found by its name");
      if (bytes > kSmall) continue;
      std::vector<std::byte> values(bytes);
      reader.read(tensor, values);
    }
  });
  return 0;
}
