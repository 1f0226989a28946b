#include "mantissa/engine/plan/uses.h"

#include <algorithm>

namespace mantissa::plan {

Uses::Uses(const Program& program) : readers_(program.buffers.size()), writer_(program.buffers.size(), -1) {
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& s = program.steps[i];
    for (const Operand& o : s.inputs) add_reader(o.buffer, i);
    if (s.addend != kNoBuffer) add_reader(s.addend, i);
    for (const BufferId b : s.outputs) set_writer(b, static_cast<std::int64_t>(i));
  }
}

void Uses::add_reader(BufferId b, std::size_t step) {
  std::vector<std::size_t>& r = readers_[at(b)];
  const auto place = std::lower_bound(r.begin(), r.end(), step);
  if (place == r.end() || *place != step) r.insert(place, step);
}

void Uses::remove_reader(BufferId b, std::size_t step) {
  std::vector<std::size_t>& r = readers_[at(b)];
  const auto place = std::lower_bound(r.begin(), r.end(), step);
  if (place != r.end() && *place == step) r.erase(place);
}

void Uses::move_readers(BufferId from, BufferId to) {
  for (const std::size_t step : readers_[at(from)]) add_reader(to, step);
  readers_[at(from)].clear();
}

}  // namespace mantissa::plan
