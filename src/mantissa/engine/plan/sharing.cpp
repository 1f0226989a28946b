#include "mantissa/engine/plan/sharing.h"

#include <algorithm>
#include <numeric>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {

std::vector<int> deal(std::span<const std::size_t> bytes, int ranks) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return bytes[i]; });
  std::vector<std::size_t> dealt(static_cast<std::size_t>(ranks));
  std::vector<int> owners(bytes.size());
  for (const std::size_t i : order) {
    const auto least = std::ranges::min_element(dealt);
    *least += bytes[i];
    owners[i] = static_cast<int>(least - dealt.begin());
  }
  return owners;
}

std::vector<int> owners_of(const Program& training, int ranks) {
  std::vector<std::size_t> trained, bytes;
  for (std::size_t i = 0; i < training.slots.size(); ++i) {
    const Slot& slot = training.slots[i];
    if (slot.gradient == kNoBuffer) continue;
    trained.push_back(i);
    bytes.push_back(aligned(training.buffer(slot.master_buffer).bytes));
    for (const Buffer& b : training.update->buffers) {
      if (b.home == Home::kept && b.slot == static_cast<std::int32_t>(i)) bytes.back() += aligned(b.bytes);
    }
  }
  std::vector<int> owners(training.slots.size(), kEveryRank);
  const std::vector<int> of_trained = deal(bytes, ranks);
  for (std::size_t t = 0; t < trained.size(); ++t) owners[trained[t]] = of_trained[t];
  return owners;
}

std::vector<bool> read_by_steps(const Program& program) {
  std::vector<bool> read(program.buffers.size());
  for (const Step& s : program.steps) {
    for (const Operand& o : s.inputs) read[static_cast<std::size_t>(o.buffer)] = true;
    if (s.addend != kNoBuffer) read[static_cast<std::size_t>(s.addend)] = true;
  }
  return read;
}

void share_weights(Program& training, const Sharing& sharing) {
  if (!sharing.divides()) return;
  const std::vector<bool> read = read_by_steps(training);
  for (std::size_t i = 0; i < training.slots.size(); ++i) {
    if (sharing.owns(i)) continue;
    Slot& slot = training.slots[i];
    slot.elsewhere = true;
    if (!read[static_cast<std::size_t>(slot.master_buffer)]) training.buffer(slot.master_buffer).elsewhere = true;
  }
  lay_out_memory(training, false);
}

}  // namespace mantissa::plan
