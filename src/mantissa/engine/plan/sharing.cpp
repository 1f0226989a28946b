#include "mantissa/engine/plan/sharing.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/plan/completions.h"
#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {

std::vector<int> owners_by_bytes(std::span<const std::size_t> bytes, int ranks) {
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
  const std::vector<int> of_trained = owners_by_bytes(bytes, ranks);
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

namespace {

/// The steps of one phase that read a weight without a long pause: those of one block of the model.
struct Reading {
  graph::Phase phase{};
  std::string_view block;
  BufferId weight = kNoBuffer;
  std::vector<std::size_t> steps;
};

class Gathering {
 public:
  explicit Gathering(Program& program) : p_(program) {}

  /// Lets all steps read `weight` in buffers where it is gathered.
  void add(BufferId weight) {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      const Step& s = p_.steps[i];
      const bool reads = s.addend == weight ||
                         std::ranges::any_of(s.inputs, [&](const Operand& o) { return o.buffer == weight; });
      if (!reads) continue;
      const std::string_view block = block_of(s.scope).empty() ? s.scope : block_of(s.scope);
      const auto same = std::ranges::find_if(readings_, [&](const Reading& r) {
        return r.weight == weight && r.phase == s.phase && r.block == block;
      });
      if (same != readings_.end()) {
        same->steps.push_back(i);
      } else {
        readings_.push_back({s.phase, block, weight, {i}});
      }
    }
  }

  /// A transfer starts when the steps of the block before begin to read theirs.
  void finish() {
    std::ranges::stable_sort(readings_, {}, [](const Reading& r) { return r.steps.front(); });
    for (const Reading& r : readings_) {
      Gather g{r.weight, add_buffer(r.weight), start_of(r), begin_of_range(r.steps.front())};
      for (const std::size_t i : r.steps) {
        Step& s = p_.steps[i];
        if (s.addend == r.weight) s.addend = g.buffer;
        for (Operand& o : s.inputs) o.buffer = o.buffer == r.weight ? g.buffer : o.buffer;
      }
      p_.gathers.push_back(g);
    }
    std::ranges::stable_sort(p_.gathers, {}, &Gather::start);
  }

 private:
  std::size_t start_of(const Reading& reading) const {
    const auto here = std::ranges::find_if(readings_, [&](const Reading& r) { return in_block(r, reading); });
    std::size_t start = here->steps.front();
    // Backwards: the block before, and its first step that reads a weight.
    for (auto r = std::make_reverse_iterator(here); r != readings_.rend(); ++r) {
      if (r->phase != reading.phase) continue;
      const auto before =
          std::ranges::find_if(readings_, [&](const Reading& other) { return in_block(other, *r); });
      start = before->steps.front();
      break;
    }
    return begin_of_range(start);
  }

  static bool in_block(const Reading& a, const Reading& b) {
    return a.phase == b.phase && a.block == b.block;
  }

  /// Steps of a chunked range run several times: transfers are complete before it.
  std::size_t begin_of_range(std::size_t step) const {
    for (const ChunkedSteps& range : p_.chunked) {
      if (range.begin <= step && step < range.end) return range.begin;
    }
    return step;
  }

  BufferId add_buffer(BufferId weight) {
    Buffer b = p_.buffer(weight);
    b.home = Home::gathered;
    b.elsewhere = false;
    p_.buffers.push_back(std::move(b));
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  Program& p_;
  std::vector<Reading> readings_;
};

/// Lets every gradient of a parameter with an owner leave when it is complete. Its memory is free again after
/// those of the next block have left.
void stream_gradients(Program& p, const Sharing& sharing) {
  for (const Completion& c : completions(p)) {
    if (sharing.owner(c.slot) == kEveryRank) continue;
    Reduction r{c.slot, kNoBuffer, c.after};
    Buffer sent = p.buffer(p.slots[c.slot].gradient);
    sent.type = p.reduce == Scalar::tf32 ? Scalar::f32 : p.reduce;
    sent.home = Home::gathered;
    p.buffers.push_back(std::move(sent));
    r.sent = static_cast<BufferId>(p.buffers.size() - 1);
    p.reductions.push_back(r);
  }
  for (Buffer& b : p.buffers) b.passing = b.home == Home::gradient;
  // Those of a block that follow each other leave together, and are awaited when the next ones leave.
  const auto block = [&](const Reduction& r) { return block_of(p.slots[r.slot].name); };
  std::size_t next = p.reductions.empty() ? 0 : p.reductions.back().after, here = next;
  for (std::size_t r = p.reductions.size(); r-- > 0;) {
    Reduction& reduction = p.reductions[r];
    reduction.last = r + 1 == p.reductions.size() || block(p.reductions[r + 1]) != block(reduction);
    if (reduction.last) next = std::exchange(here, reduction.after);
    reduction.until = next;
  }
}

}  // namespace

void share_weights(Program& training, const Sharing& sharing) {
  if (!sharing.divides()) return;
  const std::vector<bool> read = read_by_steps(training);
  Gathering gathering(training);
  for (std::size_t i = 0; i < training.slots.size(); ++i) {
    Slot& slot = training.slots[i];
    if (sharing.owner(i) == kEveryRank) continue;
    const bool owned = sharing.owns(i);
    const bool gathered = sharing.stage >= 3 && slot.shape.count() >= sharing.least_gathered;
    slot.elsewhere = !owned;
    slot.gathered = gathered;
    std::vector<BufferId> weights = slot.copies;
    weights.push_back(slot.master_buffer);
    for (const BufferId id : weights) {
      const bool reads = read[static_cast<std::size_t>(id)];
      if (reads && gathered) gathering.add(id);
      training.buffer(id).elsewhere = !owned && (reads ? gathered : id == slot.master_buffer || gathered);
    }
  }
  gathering.finish();
  if (sharing.stage >= 2 && sharing.streams) stream_gradients(training, sharing);
  lay_out_memory(training, false);
}

}  // namespace mantissa::plan
