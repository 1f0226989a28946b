#include "mutate.h"

#include <algorithm>
#include <cstring>

namespace mantissa::fuzz {

std::string mutate_bytes(std::string bytes, std::size_t most) {
  const std::size_t size = bytes.size();
  bytes.resize(std::max(size, most));
  bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size, bytes.size()));
  return bytes;
}

void mutate_in_place(std::string& bytes) {
  const std::size_t size = bytes.size();
  if (size == 0) return;
  bytes = mutate_bytes(std::move(bytes), size);
  bytes.resize(size);
}

std::optional<std::string> take_bytes(std::string_view& bytes, std::uint64_t size) {
  if (size > bytes.size()) return std::nullopt;
  std::string taken(bytes.substr(0, size));
  bytes.remove_prefix(size);
  return taken;
}

std::size_t mutate_input(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed,
                         Mutator mutator) {
  Random random(seed);
  if (mutator != nullptr && !random.one_in(8)) {
    const auto mutant = mutator({reinterpret_cast<const char*>(data), size}, random);
    if (mutant && !mutant->empty() && mutant->size() <= most) {
      std::memcpy(data, mutant->data(), mutant->size());
      return mutant->size();
    }
  }
  return LLVMFuzzerMutate(data, size, most);
}

}  // namespace mantissa::fuzz
