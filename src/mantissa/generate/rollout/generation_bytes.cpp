#include "mantissa/generate/rollout/generation_bytes.h"

namespace mantissa::rollout {

comm::Bytes bytes_of(std::span<const Generation> generations) {
  comm::Bytes bytes;
  for (const Generation& g : generations) {
    comm::append(bytes, g.ids);
    comm::append(bytes, g.log_probs);
    comm::append(bytes, g.entropies);
    comm::append(bytes, g.seconds);
    comm::append(bytes, g.ended);
  }
  return bytes;
}

std::vector<Generation> generations_of(std::span<const std::byte> bytes) {
  std::vector<Generation> all;
  while (!bytes.empty()) {
    Generation& g = all.emplace_back();
    g.ids = comm::take<std::vector<std::int32_t>>(bytes);
    g.log_probs = comm::take<std::vector<double>>(bytes);
    g.entropies = comm::take<std::vector<double>>(bytes);
    g.seconds = comm::take<double>(bytes);
    g.ended = comm::take<bool>(bytes);
  }
  return all;
}

}  // namespace mantissa::rollout
