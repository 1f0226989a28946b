#include "mantissa/setup/forecast/step_timeline.h"

#include <algorithm>
#include <span>
#include <vector>

#include "mantissa/engine/comm/streamed_sum.h"
#include "mantissa/engine/plan/completions.h"

namespace mantissa::forecast {
namespace {

/// The links between machines, or between ranks if all share one machine.
class Links {
 public:
  Links(int ranks, int nodes, const Network& network, const Machine& machine)
      : ranks_(ranks), nodes_(nodes == 1 ? ranks : nodes), network_(network), machine_(machine) {}

  int ranks() const { return ranks_; }
  const Network& network() const { return network_; }

  /// Returns the seconds in which every rank exchanges `bytes[r]` with each rank r, in one direction.
  double seconds(std::span<const double> bytes) const {
    std::vector<double> of_machine(static_cast<std::size_t>(nodes_));
    double all = 0, most = 0;
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      of_machine[r * of_machine.size() / bytes.size()] += bytes[r];
      all += bytes[r];
    }
    const double here = static_cast<double>(ranks_) / nodes_;
    for (const double own : of_machine) {
      const double with_owners = (ranks_ - here) * own, with_others = here * (all - own);
      most = std::max(most, std::max(with_owners, with_others) / network_.bytes_per_second +
                                (here - 1) * own / machine_.bytes_per_second);
    }
    return network_.latency + most;
  }

 private:
  int ranks_, nodes_;
  Network network_;
  Machine machine_;
};

/// The clock of a rank, and its transfers in their order.
class RankClock {
 public:
  explicit RankClock(const Links& links) : links_(links) {}

  void compute(double seconds) { now_ += seconds; }
  /// Starts a transfer. Returns the time of its end.
  double start(std::span<const double> bytes) {
    const double seconds = links_.seconds(bytes);
    sending_ += seconds;
    return free_ = std::max(now_, free_) + seconds;
  }
  void wait_until(double time) { now_ = std::max(now_, time); }
  void wait_for_all() { wait_until(free_); }
  /// Waits for a short message, which follows all transfers.
  void agree() { now_ = free_ = std::max(now_, free_) + links_.network().latency; }

  double now() const { return now_; }
  double sending() const { return sending_; }

 private:
  const Links& links_;
  double now_ = 0, free_ = 0, sending_ = 0;
};

class SimulatedStep {
 public:
  SimulatedStep(const programs::RunPart& part, const Links& links)
      : part_(part),
        p_(*part.program),
        clock_(links),
        gathered_(p_.gathers.size()),
        sent_(p_.reductions.size()),
        bytes_(static_cast<std::size_t>(links.ranks())) {
    if (p_.reductions.empty()) completions_ = plan::completions(p_);
    if (!part.sharing.divides()) return;
    for (const plan::Slot& slot : p_.slots) {
      if (slot.gradient != plan::kNoBuffer)
        owners_.push_back(part.sharing.owner(static_cast<std::size_t>(&slot - p_.slots.data())));
    }
  }

  /// Runs a micro-batch, whose steps take `seconds` each.
  void run(std::span<const double> seconds, bool last) {
    for (std::size_t i = 0; i < p_.steps.size(); ++i) {
      if (p_.steps[i].phase == graph::Phase::evaluate) continue;
      gather(i);
      clock_.compute(seconds[i]);
      reduce(i);
      if (last) complete(i);
    }
    clock_.agree();
  }

  /// Updates the weights, after all sums.
  void update(double seconds, std::span<const double> weights) {
    clock_.wait_for_all();
    clock_.compute(seconds);
    if (std::ranges::any_of(weights, [](double b) { return b > 0; })) clock_.start(weights);
    clock_.wait_for_all();
  }

  const RankClock& clock() const { return clock_; }

 private:
  void gather(std::size_t i) {
    std::ranges::fill(bytes_, 0);
    bool starts = false;
    for (const plan::Gather& g : p_.gathers) {
      if (g.start != i) continue;
      const plan::Buffer& b = p_.buffer(g.buffer);
      bytes_[static_cast<std::size_t>(part_.sharing.owner(static_cast<std::size_t>(b.slot)))] +=
          static_cast<double>(b.bytes);
      starts = true;
    }
    if (starts) {
      const double end = clock_.start(bytes_);
      for (std::size_t g = 0; g < gathered_.size(); ++g) {
        if (p_.gathers[g].start == i) gathered_[g] = end;
      }
    }
    for (std::size_t g = 0; g < gathered_.size(); ++g) {
      if (p_.gathers[g].first == i) clock_.wait_until(gathered_[g]);
    }
  }

  void reduce(std::size_t i) {
    for (std::size_t r = 0; r < sent_.size(); ++r) {
      const plan::Reduction& reduction = p_.reductions[r];
      if (reduction.after != i) continue;
      together_.push_back(reduction.slot);
      added_.push_back(r);
      if (!reduction.last) continue;
      const double end = send_groups(1, false);
      for (const std::size_t a : added_) sent_[a] = end;
      added_.clear();
    }
    for (std::size_t r = 0; r < sent_.size(); ++r) {
      if (p_.reductions[r].until == i) clock_.wait_until(sent_[r]);
    }
  }

  void complete(std::size_t i) {
    const auto [rank, ranks, parts] = part_.rank;
    for (const plan::Completion& c : completions_) {
      if (c.after != i) continue;
      together_.push_back(c.slot);
      if (!c.last) continue;
      const std::size_t sums =
          comm::pieces_of(comm::shards_of(rank, ranks, p_.shards, parts), p_.shards).size();
      send_groups(static_cast<double>(sums), owners_.empty());
    }
  }

  /// Sends `sums` sums of the gradients that leave together to those who add them and, if `back`, the
  /// results. Returns the time of the end.
  double send_groups(double sums, bool back) {
    std::vector<std::int64_t> counts;
    std::vector<int> owners;
    for (const std::size_t slot : together_) {
      counts.push_back(p_.slots[slot].shape.count());
      if (!owners_.empty()) owners.push_back(part_.sharing.owner(slot));
    }
    together_.clear();
    const int ranks = part_.rank.ranks;
    const auto each = static_cast<double>(bytes_of(comm::sum_format(p_.reduce)));
    double end = clock_.now();
    for (const std::vector<comm::Slice>& group : comm::groups_of(counts, ranks, p_.reduce)) {
      std::ranges::fill(bytes_, 0);
      for (const comm::Slice& slice : group) {
        if (!owners.empty()) {
          bytes_[static_cast<std::size_t>(owners[slice.parameter])] +=
              sums * each * static_cast<double>(slice.elements.count());
          continue;
        }
        for (int r = 0; r < ranks; ++r)
          bytes_[static_cast<std::size_t>(r)] +=
              sums * each * static_cast<double>(comm::part_of(r, ranks, slice.elements.count()).count());
      }
      end = clock_.start(bytes_);
      for (double& b : bytes_) b /= sums;
      if (back) end = clock_.start(bytes_);
    }
    return end;
  }

  const programs::RunPart& part_;
  const plan::Program& p_;
  RankClock clock_;
  std::vector<plan::Completion> completions_;
  std::vector<int> owners_;              // of gradients; empty: all ranks receive the sums
  std::vector<double> gathered_, sent_;  // times of the ends
  std::vector<std::size_t> together_;    // slots whose gradients wait for the last one of their block
  std::vector<std::size_t> added_;       // their reductions
  std::vector<double> bytes_;            // by rank
};

}  // namespace

StepTimeline forecast_timeline(const programs::RunPart& part, const config::RunConfig& share, int nodes,
                               const Network& network, const Machine& machine, double computing,
                               double keys) {
  const plan::Program& p = *part.program;
  const std::int64_t micro_batches = share.batch.global_batch_size / share.batch.micro_batch_size;
  std::vector<double> seconds(p.steps.size());
  double all = update_seconds(p, machine);
  const double update = all;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    if (p.steps[i].phase == graph::Phase::evaluate) continue;
    seconds[i] = step_seconds(p, p.steps[i], share.batch.leaf * share.data.sequence_length, machine);
    all += static_cast<double>(micro_batches) * seconds[i];
  }
  const double scale = computing / all;
  for (double& s : seconds) s *= scale;

  const Links links(part.rank.ranks, nodes, network, machine);
  SimulatedStep step(part, links);
  for (std::int64_t m = 0; m < micro_batches; ++m) step.run(seconds, m + 1 == micro_batches);
  std::vector<double> weights(static_cast<std::size_t>(part.rank.ranks));
  for (int r = 0; r < part.rank.ranks; ++r) weights[static_cast<std::size_t>(r)] = updated_bytes(part, r);
  step.update(update * scale, weights);
  // Keys travel while attention computes.
  const std::vector<double> of_keys(weights.size(), keys / (part.rank.ranks - 1));
  const double sending = step.clock().sending() + (keys > 0 ? links.seconds(of_keys) : 0);
  const double end = std::max(step.clock().now(), sending);
  return {end, sending, std::max(0.0, end - computing)};
}

}  // namespace mantissa::forecast
