// What the ranks of a run exchange in a step, besides the sums of gradients (engine/comm/shard_sum.h).
#include <algorithm>
#include <cassert>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include <xxhash.h>

#include "mantissa/core/base/error_text.h"

#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {
namespace {

using nlohmann::json;

/// JSON has no infinities: numbers are hexadecimal bits.
std::uint64_t bits(double x) {
  return std::bit_cast<std::uint64_t>(x);
}

std::string to_text(const Overflow& o) {
  json inputs = json::array();
  for (const runtime::ReadRange& r : o.inputs) inputs.push_back({r.name, bits(r.absmax)});
  return json{{"what", o.what},       {"scope", o.scope},     {"rows", o.rows},
              {"forward", o.forward}, {"op", o.op},           {"pass", o.pass},
              {"origins", o.origins}, {"inputs", inputs},     {"value", bits(o.value)},
              {"format", o.format},   {"channel", o.channel}, {"cure", o.cure}}
      .dump();
}

Overflow overflow_of(const std::string& text) {
  const json j = json::parse(text);
  Overflow o{j["what"], j["scope"], j["rows"], j["forward"], j["op"], j["pass"], j["origins"]};
  for (const json& r : j["inputs"])
    o.inputs.push_back({r[0], std::bit_cast<double>(r[1].get<std::uint64_t>())});
  o.value = std::bit_cast<double>(j["value"].get<std::uint64_t>());
  o.format = j["format"].get<Scalar>();
  o.channel = j["channel"];
  o.cure = j["cure"];
  return o;
}

}  // namespace

std::optional<Overflow> Trainer::first_of_ranks(const std::optional<Overflow>& own) {
  if (ranks_.alone()) return own;
  std::optional<Overflow> first;
  for (const std::vector<std::byte>& found :
       ranks_.all_gather(comm::bytes_of_text(own ? to_text(*own) : ""))) {
    if (found.empty()) continue;
    Overflow other = overflow_of(comm::text_of(found));
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
  for (const std::vector<std::byte>& of_rank : ranks_.all_gather(std::as_bytes(std::span(own)))) {
    for (std::size_t i = 0; i < own.size(); ++i) {
      float amax = 0;
      std::memcpy(&amax, of_rank.data() + i * sizeof amax, sizeof amax);
      scales.scale(i).amax = std::max(scales.scale(i).amax, amax);
    }
  }
}

void Trainer::share_carried(const text::StepData& rows) {
  if (ranks_.alone()) return;
  for (CarriedStates::State& state : carried_.all()) {
    const std::size_t row = state.bytes.size() / static_cast<std::size_t>(state.shape.front());
    // One block of rows for each rank, or one in each turn.
    const std::int64_t turns = streams() ? config_.batch.shards / ranks_.size() : 1;
    const std::size_t block = state.bytes.size() / static_cast<std::size_t>(turns * ranks_.size());
    assert(block * static_cast<std::size_t>(turns * ranks_.size()) == state.bytes.size() && block % row == 0);
    for (std::int64_t turn = 0; turn < turns; ++turn) {
      std::vector<std::span<std::byte>> blocks;
      for (int rank = 0; rank < ranks_.size(); ++rank) {
        const auto at = static_cast<std::size_t>(turn * ranks_.size() + rank);
        blocks.push_back(std::span(state.bytes).subspan(at * block, block));
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
  std::vector<Rounded> sum = probe.rounded();
  const std::vector<Rounded> own = std::move(sum);
  sum.assign(own.size(), {});
  for (const std::vector<std::byte>& of_rank : ranks_.all_gather(std::as_bytes(std::span(own)))) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      Rounded other;
      std::memcpy(static_cast<void*>(&other), of_rank.data() + i * sizeof other, sizeof other);
      sum[i].count += other.count;
      sum[i].lost.flushed += other.lost.flushed;
      sum[i].lost.saturated += other.lost.saturated;
    }
  }
  probe.set_rounded(std::move(sum));
}

void Trainer::share_counts() {
  if (ranks_.alone() || reduced_.empty()) return;
  std::vector<ValueCounts> sum(reduced_.size());
  for (const std::vector<std::byte>& of_rank : ranks_.all_gather(std::as_bytes(std::span(reduced_)))) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ValueCounts counts;
      std::memcpy(static_cast<void*>(&counts), of_rank.data() + i * sizeof counts, sizeof counts);
      sum[i].merge(counts);
    }
  }
  reduced_ = std::move(sum);
}

}  // namespace mantissa::train
