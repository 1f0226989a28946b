// Activations that are recomputed instead of kept. A part of the forward phase runs again, with separate
// results, before its first backward step, so that no gradient is held meanwhile.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/uses.h"

namespace mantissa::plan {

std::string_view block_of(std::string_view scope) {
  for (std::size_t begin = 0; begin < scope.size();) {
    const std::size_t end = std::min(scope.find('.', begin), scope.size());
    const std::string_view part = scope.substr(begin, end - begin);
    if (std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      return scope.substr(0, end);
    begin = end + 1;
  }
  return {};
}

namespace {

using graph::Phase;

bool is_below(std::string_view scope, std::string_view module) {
  return scope.starts_with(module) && (scope.size() == module.size() || scope[module.size()] == '.');
}

/// Steps of the forward phase that may be repeated together, ascending.
using Region = std::vector<std::size_t>;

/// Returns true for the steps that pass values between tokens.
bool mixes_tokens(const Step& s) {
  return s.op->kind == graph::OpKind::attention || s.op->kind == graph::OpKind::recurrence;
}

/// Returns the blocks, of the last one only the steps after its attention or recurrence, or none if steps do
/// not run in chunks. The backward steps of the last block follow immediately, so recomputation saves memory
/// only if both run in chunks, which those do not.
std::vector<Region> blocks(const Program& p, bool in_chunks) {
  std::vector<Region> regions;
  std::map<std::string_view, std::size_t> region_of;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const std::string_view block = block_of(p.steps[i].scope);
    if (p.steps[i].phase != Phase::forward || block.empty()) continue;
    const auto [it, is_new] = region_of.emplace(block, regions.size());
    if (is_new) regions.emplace_back();
    regions[it->second].push_back(i);
  }
  if (regions.empty()) return regions;
  Region& last = regions.back();
  const auto attention =
      std::find_if(last.rbegin(), last.rend(), [&](std::size_t s) { return mixes_tokens(p.steps[s]); });
  last.erase(last.begin(), in_chunks ? attention.base() : last.end());
  return regions;
}

/// Returns the modules with attention or a recurrence, each with everything below it.
std::vector<Region> attention_modules(const Program& p) {
  std::vector<Region> regions;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const Step& attention = p.steps[i];
    if (attention.phase != Phase::forward || !mixes_tokens(attention)) continue;
    const auto inside = [&](std::size_t s) {
      return p.steps[s].phase == Phase::forward && is_below(p.steps[s].scope, attention.scope);
    };
    // The steps of a module are consecutive.
    Region region;
    std::size_t first = i;
    while (first > 0 && inside(first - 1)) --first;
    for (std::size_t s = first; s < p.steps.size() && inside(s); ++s) region.push_back(s);
    regions.push_back(std::move(region));
  }
  return regions;
}

class Recomputing {
 public:
  explicit Recomputing(Program& program) : p_(program), uses_(program), before_(program.steps.size()) {}

  void run(const std::vector<Region>& regions) {
    for (const Region& region : regions) run_again(region);
    std::vector<Step> steps;
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      std::move(before_[i].begin(), before_[i].end(), std::back_inserter(steps));
      steps.push_back(std::move(p_.steps[i]));
    }
    p_.steps = std::move(steps);
  }

 private:
  bool is_backward(std::size_t step) const { return p_.steps[step].phase == Phase::backward; }

  /// Returns true if a result of `region` stays in memory because steps other than its own and those of the
  /// backward phase read it.
  bool is_kept(const Region& region, BufferId b) const {
    if (p_.buffer(b).home != Home::activation || is_output(p_, b)) return true;
    const std::vector<std::size_t>& readers = uses_.readers(b);
    return std::any_of(readers.begin(), readers.end(), [&](std::size_t r) {
      return !is_backward(r) && !std::binary_search(region.begin(), region.end(), r);
    });
  }

  /// Returns the first backward step, before step `end`, of a module in `region`; `end` if there is none.
  std::size_t first_backward_step(const Region& region, std::size_t end) const {
    std::set<std::string_view> scopes;
    for (const std::size_t s : region) scopes.insert(p_.steps[s].scope);
    for (std::size_t i = 0; i < end; ++i) {
      if (is_backward(i) && scopes.contains(p_.steps[i].scope)) return i;
    }
    return end;
  }

  void run_again(const Region& region) {
    // The results that the backward phase reads, and those needed to compute them from kept ones.
    std::set<BufferId> wanted;
    std::size_t first_reader = p_.steps.size();
    for (const std::size_t s : region) {
      for (const BufferId b : p_.steps[s].outputs) {
        const std::vector<std::size_t>& readers = uses_.readers(b);
        const auto reader =
            std::find_if(readers.begin(), readers.end(), [&](std::size_t r) { return is_backward(r); });
        if (reader == readers.end() || is_kept(region, b)) continue;
        wanted.insert(b);
        first_reader = std::min(first_reader, *reader);
      }
    }
    std::vector<Step> again;
    for (auto s = region.rbegin(); s != region.rend(); ++s) {
      const Step& step = p_.steps[*s];
      if (std::none_of(step.outputs.begin(), step.outputs.end(),
                       [&](BufferId b) { return wanted.contains(b); }))
        continue;
      again.push_back(step);
      for_each_read(step, [&](BufferId b) {
        const std::int64_t w = uses_.writer(b);
        const bool inside =
            w >= 0 && std::binary_search(region.begin(), region.end(), static_cast<std::size_t>(w));
        if (inside && !is_kept(region, b)) wanted.insert(b);
      });
    }
    if (again.empty()) return;
    std::reverse(again.begin(), again.end());
    std::map<BufferId, BufferId> fresh;
    for (Step& step : again) {
      step.phase = Phase::backward;
      step.recomputed = true;
      read_instead(step, fresh);
      for (BufferId& b : step.outputs) {
        if (p_.buffer(b).home != Home::state)
          b = fresh[b] = copy_of(b);  // a state gets the same values again
      }
    }
    for (const BufferId b : wanted) {
      for (const std::size_t r : uses_.readers(b)) {
        if (is_backward(r)) read_instead(p_.steps[r], fresh);
      }
    }
    std::vector<Step>& place = before_[first_backward_step(region, first_reader)];
    place.insert(place.end(), again.begin(), again.end());
  }

  template <class Visit>
  static void for_each_read(const Step& step, const Visit& visit) {
    for (const Operand& o : step.inputs) visit(o.buffer);
    if (step.addend != kNoBuffer) visit(step.addend);
  }

  static void read_instead(Step& step, const std::map<BufferId, BufferId>& fresh) {
    const auto instead = [&](BufferId b) {
      const auto it = fresh.find(b);
      return it == fresh.end() ? b : it->second;
    };
    for (Operand& o : step.inputs) o.buffer = instead(o.buffer);
    step.addend = instead(step.addend);
  }

  BufferId copy_of(BufferId b) {
    Buffer copy = p_.buffer(b);
    copy.name += ":recomputed";
    copy.value = graph::kNone;
    p_.buffers.push_back(std::move(copy));
    return static_cast<BufferId>(p_.buffers.size() - 1);
  }

  Program& p_;
  Uses uses_;
  std::vector<std::vector<Step>> before_;  // steps to insert before a step
};

}  // namespace

Recompute parse_recompute(std::string_view name) {
  if (name == "none") return Recompute::none;
  if (name == "attention") return Recompute::attention;
  if (name == "block") return Recompute::block;
  throw ConfigError("unknown batch.recompute \"{}\"; one of none, attention, block", name);
}

void recompute(Program& program, Recompute what, bool in_chunks) {
  if (what == Recompute::none) return;
  Recomputing(program).run(what == Recompute::block ? blocks(program, in_chunks)
                                                    : attention_modules(program));
}

}  // namespace mantissa::plan
