// What the ranks of a run exchange in a step, besides the sums of gradients (engine/comm/shard_sum.h).
#include <algorithm>
#include <cassert>
#include <cstring>
#include <tuple>
#include <utility>

#include <xxhash.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/comm/bytes.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {
namespace {

/// Returns the fields of an overflow but what its op read.
template <class SomeOverflow>
auto fields_of(SomeOverflow& o) {
  return std::tie(o.what, o.scope, o.rows, o.forward, o.op, o.pass, o.origins, o.value, o.format, o.channel,
                  o.cure);
}

comm::Bytes bytes_of(const Overflow& o) {
  comm::Bytes bytes;
  comm::append_all(bytes, fields_of(o));
  for (const runtime::ReadRange& r : o.inputs) comm::append_all(bytes, std::tie(r.name, r.absmax));
  return bytes;
}

Overflow overflow_of(std::span<const std::byte> bytes) {
  Overflow o;
  comm::take_all(bytes, fields_of(o));
  while (!bytes.empty()) {
    runtime::ReadRange& r = o.inputs.emplace_back();
    comm::take_all(bytes, std::tie(r.name, r.absmax));
  }
  return o;
}

}  // namespace

std::optional<Overflow> Trainer::first_of_ranks(const std::optional<Overflow>& own) {
  if (ranks_.alone()) return own;
  std::optional<Overflow> first;
  for (const comm::Bytes& found : ranks_.all_gather(own ? bytes_of(*own) : comm::Bytes())) {
    if (found.empty()) continue;
    Overflow other = overflow_of(found);
    if (!first) {
      first = std::move(other);
    } else if (other.scope == first->scope && other.op == first->op && other.pass == first->pass) {
      first->origins.insert(first->origins.end(), other.origins.begin(), other.origins.end());
    }
  }
  return first;
}

void Trainer::share_magnitudes() {
  runtime::Scales& scales = weights_->scales();
  if (ranks_.alone() || scales.size() == 0) return;
  std::vector<float> own;
  for (std::size_t i = 0; i < scales.size(); ++i) own.push_back(scales.scale(i).amax);
  for (const comm::Bytes& of_rank : ranks_.all_gather(std::as_bytes(std::span(own)))) {
    const std::vector<float> other = comm::values_of<float>(of_rank);
    for (std::size_t i = 0; i < own.size(); ++i)
      scales.scale(i).amax = std::max(scales.scale(i).amax, other[i]);
  }
}

void Trainer::share_carried() {
  if (ranks_.alone()) return;
  for (CarriedStates::State& state : carried_.all()) {
    [[maybe_unused]] const std::size_t row =
        state.bytes.size() / static_cast<std::size_t>(state.shape.front());
    // One block of rows for each rank, or one in each turn. Of ranks that share rows the first one has their
    // ends.
    const std::int64_t turns = streams() ? config_.batch.shards / groups() : 1;
    const std::size_t block = state.bytes.size() / static_cast<std::size_t>(turns * groups());
    assert(block * static_cast<std::size_t>(turns * groups()) == state.bytes.size() && block % row == 0);
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      std::vector<std::span<std::byte>> blocks;
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        const auto at = static_cast<std::size_t>(turn * groups() + rank / row_parts());
        const bool has_ends = rank % row_parts() == 0;
        blocks.push_back(std::span(state.bytes).subspan(at * block, has_ends ? block : 0));
      }
      ranks_.all_gather(std::move(blocks)).get();
    }
  }
}

void Trainer::compare_rows(const text::StepData& rows) {
  if (ranks_.alone()) return;
  const auto hash = [](const auto& values, std::uint64_t seed) {
    return XXH3_64bits_withSeed(values.data(), values.size() * sizeof values[0], seed);
  };
  const std::uint64_t own = hash(rows.weights, hash(rows.targets, hash(rows.ids, 0)));
  const std::vector<std::vector<std::byte>> all = ranks_.all_gather(std::as_bytes(std::span(&own, 1)));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw RunStopped(
        "step {}: {} has other rows of data than {}. Fix: the same files on all machines, then --overwrite",
        step_ + 1, ranks_.place(static_cast<int>(rank)), ranks_.place(0));
  }
}

void Trainer::compare_when_due() {
  stopped_ = false;
  const std::int64_t interval = config_.distributed.check_interval;
  const bool due = interval > 0 && (step_ % interval == 0 || step_ == config_.run.steps);
  if (ranks_.alone() || !due || step_ == compared_) return;
  compared_ = step_;
  compare_ranks();
}

void Trainer::compare_ranks() {
  std::vector<std::uint64_t> own;
  std::vector<std::string> names;
  std::vector<std::byte> copy;
  const auto add = [&](const std::string& name, std::span<const std::byte> there) {
    names.push_back(name);
    const std::span<const std::byte> bytes = device_.view(there.data(), there.size(), copy);
    own.push_back(XXH3_64bits(bytes.data(), bytes.size()));
  };
  for (const NamedMemory& tensor : state_memory()) {
    if (tensor.owner == plan::kEveryRank) add(tensor.name, tensor.bytes);
  }
  if (shares_weights()) {
    for (std::size_t i = 0; i < program().slots.size(); ++i) {
      if (sharing().owner(i) == plan::kEveryRank) continue;
      for (const std::span<std::byte> bytes : shared_->common(*weights_, i))
        add(program().slots[i].name, bytes);
    }
  }
  const std::vector<std::vector<std::byte>> all = ranks_.all_gather(std::as_bytes(std::span(own)));
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const std::size_t at = i * sizeof(std::uint64_t);
      if (std::memcmp(all[rank].data() + at, all[0].data() + at, sizeof(std::uint64_t)) == 0) continue;
      throw RunStopped(
          "step {}: {} of {} has other bytes than that of {}, although ranks compute the same. Fix: start the "
          "same build on all machines, test the memory of this one, and continue with --resume from an "
          "earlier state",
          step_, names[i], ranks_.place(static_cast<int>(rank)), ranks_.place(0));
    }
  }
}

void Trainer::share_rounded(runtime::HealthProbe& probe) {
  if (ranks_.alone()) return;
  using Rounded = runtime::HealthProbe::Rounded;
  const std::vector<Rounded> own = probe.rounded();
  std::vector<Rounded> sum(own.size());
  for (const comm::Bytes& of_rank : ranks_.all_gather(std::as_bytes(std::span(own)))) {
    const std::vector<Rounded> other = comm::values_of<Rounded>(of_rank);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i].count += other[i].count;
      sum[i].lost.flushed += other[i].lost.flushed;
      sum[i].lost.saturated += other[i].lost.saturated;
    }
  }
  probe.set_rounded(std::move(sum));
}

void Trainer::share_counts() {
  if (ranks_.alone() || reduced_.empty()) return;
  std::vector<ValueCounts> sum(reduced_.size());
  for (const comm::Bytes& of_rank : ranks_.all_gather(std::as_bytes(std::span(reduced_)))) {
    const std::vector<ValueCounts> other = comm::values_of<ValueCounts>(of_rank);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i].merge(other[i]);
  }
  reduced_ = std::move(sum);
}

}  // namespace mantissa::train
