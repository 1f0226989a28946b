#include "mantissa/weights/fixed_hash.h"

#include <fmt/format.h>

#include "mantissa/io/hash.h"

namespace mantissa::weights {

std::string hash_of_fixed(const runtime::WeightSet& weights) {
  const plan::Program& program = weights.program();
  io::Hash64 hash;
  bool any = false;
  const auto add = [&](plan::BufferId id) {
    const plan::Buffer& buffer = program.buffer(id);
    const std::byte* data = weights.find(program, id);
    if (data == nullptr || buffer.quants || buffer.quantization) return;
    any = true;
    const std::string name = fmt::format("{} {}\n", buffer.name, traits(buffer.type).name);
    hash.update(std::as_bytes(std::span(name)));
    std::vector<std::byte> staging;
    hash.update(weights.device().view(data, buffer.bytes, staging));
  };
  for (const plan::Slot& slot : program.slots) {
    if (!slot.fixed) continue;
    add(slot.master_buffer);
    for (const plan::BufferId copy : slot.copies) add(copy);
  }
  return any ? io::hex(hash.digest()) : std::string();
}

}  // namespace mantissa::weights
