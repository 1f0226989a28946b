// Places every buffer: persistent regions of the arena first, then activations by lifetime, so that buffers
// that are alive together do not overlap.
#include <algorithm>
#include <numeric>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/plan/first_fit.h"
#include "mantissa/engine/plan/joint_products.h"
#include "mantissa/engine/plan/lifetimes.h"
#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {
namespace {

/// The root of each buffer: buffers with one root share memory, as a view or because an op works in place.
class Places {
 public:
  explicit Places(std::size_t n) : root_(n) { std::iota(root_.begin(), root_.end(), 0); }
  std::size_t root(std::size_t i) const {
    while (root_[i] != i) i = root_[i];
    return i;
  }
  void join(std::size_t into, std::size_t from) { root_[root(from)] = root(into); }

 private:
  std::vector<std::size_t> root_;
};

/// Gives views the place of their parent, which lives as long as any of them.
void join_views(const Program& p, std::vector<Lifetime>& lives, Places& places) {
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].parent == kNoBuffer || !lives[b].used()) continue;
    const auto parent = static_cast<std::size_t>(p.buffers[b].parent);
    places.join(parent, b);
    lives[parent].add(lives[b]);
  }
}

/// Lets a result take the memory of an operand that is not used later, if the op can work in place.
void share_places(const Program& p, std::vector<Lifetime>& lives, Places& places) {
  // Other buffers lie in the memory of a view or of its parent.
  std::vector<bool> partly_shared(p.buffers.size());
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (p.buffers[b].parent == kNoBuffer) continue;
    partly_shared[b] = partly_shared[static_cast<std::size_t>(p.buffers[b].parent)] = true;
  }
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    if (s.outputs.empty()) continue;
    const auto out = static_cast<std::size_t>(s.outputs[0]);
    std::vector<BufferId> candidates;
    if (s.op->in_place) {
      for (const Operand& o : s.inputs) candidates.push_back(o.buffer);
    }
    if (s.addend != kNoBuffer) candidates.push_back(s.addend);
    for (const BufferId c : candidates) {
      const std::size_t from = places.root(static_cast<std::size_t>(c));
      const Buffer& b = p.buffer(c);
      const bool fits = b.home == Home::activation && p.buffers[out].home == Home::activation &&
                        b.held_shape() == p.buffers[out].held_shape() &&
                        b.layout() == p.buffers[out].layout() && !partly_shared[out] &&
                        !partly_shared[static_cast<std::size_t>(c)];
      const bool read_twice =
          std::count_if(s.inputs.begin(), s.inputs.end(), [&](const Operand& o) { return o.buffer == c; }) +
              (s.addend == c ? 1 : 0) >
          1;
      if (!fits || read_twice || lives[from].last != static_cast<std::int64_t>(i) || places.root(out) == from)
        continue;
      places.join(from, out);
      lives[from].last = std::max(lives[from].last, lives[out].last);
      break;
    }
  }
}

/// Places the largest buffers first, each at the first offset that fits. Returns the end.
std::size_t pack(std::vector<Buffer>& buffers, const std::vector<std::size_t>& roots,
                 const std::vector<Lifetime>& lives, std::size_t steps) {
  std::vector<std::size_t> order = roots;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  FirstFit fit(static_cast<std::int64_t>(steps) + 1);  // outputs live on after the last step
  std::size_t end = 0;
  for (const std::size_t b : order) {
    const std::size_t bytes = aligned(buffers[b].bytes);
    buffers[b].offset = fit.place(bytes, lives[b].first, lives[b].last);
    end = std::max(end, buffers[b].offset + bytes);
  }
  return end;
}

/// Returns true for buffers that take the memory of others before and after their lifetimes.
bool in_turns(const Buffer& b) {
  return b.home == Home::activation || b.home == Home::gathered || b.passing;
}

/// Places the buffers of one home one after another. Returns the end.
std::size_t place_in_order(Program& p, Home home, std::size_t begin) {
  for (Buffer& b : p.buffers) {
    if (b.home != home || b.elsewhere || b.passing) continue;
    b.offset = begin;
    begin += aligned(b.bytes);
  }
  return begin;
}

}  // namespace

void lay_out_memory(Program& p, bool keep_values) {
  for (Buffer& b : p.buffers) b.bytes = b.chunk > 0 ? b.layout().bytes(b.held_shape()) : b.stored_bytes();
  std::vector<Lifetime> lives = lifetimes(p, keep_values);
  extend_over_joint_products(p, lives);
  // With keep_values, every value stays readable, so no op works in place.
  Places places(p.buffers.size());
  join_views(p, lives, places);
  if (!keep_values) share_places(p, lives, places);
  extend_over_chunks(p, lives);
  for (std::size_t b = 0; b < lives.size(); ++b) {
    if (lives[b].used() && places.root(b) != b) lives[places.root(b)].add(lives[b]);
  }

  MemoryRegions& m = p.memory;
  std::size_t end = 0;
  m.inputs = place_in_order(p, Home::input, 0);
  end = place_in_order(p, Home::constant, m.inputs);
  m.constants = end - m.inputs;
  const std::size_t states_end = place_in_order(p, Home::state, end);
  m.states = states_end - end;
  const std::size_t gradients_end = place_in_order(p, Home::gradient, states_end);
  m.gradients = gradients_end - states_end;

  std::vector<std::size_t> roots;
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (in_turns(p.buffers[b]) && lives[b].used() && places.root(b) == b) roots.push_back(b);
  }
  m.activations = pack(p.buffers, roots, lives, p.steps.size());
  for (std::size_t b = 0; b < p.buffers.size(); ++b) {
    if (in_turns(p.buffers[b]) && lives[b].last >= 0) {
      p.buffers[b].offset = p.buffers[places.root(b)].offset +
                            static_cast<std::size_t>(p.buffers[b].first_column) * bytes_of(p.buffers[b].type);
    }
  }
  for (Buffer& b : p.buffers) {
    if (in_turns(b)) b.offset += gradients_end;
  }
  for (const Step& s : p.steps) m.work = std::max(m.work, aligned(s.workspace));
  p.work_offset = gradients_end + m.activations;

  m.masters = place_in_order(p, Home::master, 0);
  m.copies = place_in_order(p, Home::copy, m.masters) - m.masters;
  m.kept = place_in_order(p, Home::kept, 0);
}

}  // namespace mantissa::plan
