#include "mantissa/train/steps/shared_weights.h"

#include <algorithm>
#include <memory>

#include "mantissa/engine/comm/bytes.h"

namespace mantissa::train {

SharedWeights::~SharedWeights() {
  for (const std::shared_future<void>& f : gathers_) {
    if (f.valid()) f.wait();
  }
}

std::vector<std::span<std::byte>> SharedWeights::common(const runtime::WeightSet& weights,
                                                        std::size_t slot) const {
  std::vector<std::span<std::byte>> all = weights.scales_of(slot);
  if (program_.slots[slot].gathered) return all;
  std::ranges::copy(weights.copies_of(slot), std::back_inserter(all));
  const plan::BufferId id = program_.slots[slot].master_buffer;
  if (read_[static_cast<std::size_t>(id)])
    all.push_back({static_cast<std::byte*>(weights.master(slot).data), program_.buffer(id).bytes});
  return all;
}

void SharedWeights::start(std::vector<Weight> weights) {
  std::vector<int> owners;
  for (const Weight& w : weights)
    owners.push_back(
        sharing_.owner(static_cast<std::size_t>(program_.buffer(program_.gathers[w.i].buffer).slot)));
  // All at once, so that links carry weights in both directions.
  const std::shared_future<void> under_way = ranks_.start([weights, owners](comm::Messages& m) {
    for (std::size_t w = 0; w < weights.size(); ++w) {
      if (owners[w] != m.rank()) {
        m.receive(owners[w], weights[w].buffer);
        continue;
      }
      for (int to = 0; to < m.size(); ++to) {
        if (to != m.rank()) m.send(to, weights[w].weight);
      }
      std::ranges::copy(weights[w].weight, weights[w].buffer.begin());
    }
    m.complete();
  });
  for (const Weight& w : weights) gathers_[w.i] = under_way;
}

std::vector<int> SharedWeights::owners_of_gradients() const {
  std::vector<int> owners;
  for (std::size_t i = 0; i < program_.slots.size(); ++i) {
    if (program_.slots[i].gradient != plan::kNoBuffer) owners.push_back(sharing_.owner(i));
  }
  return owners;
}

void SharedWeights::stream(std::vector<comm::Gradient> gradients, const runtime::Device& device,
                           std::uint64_t seed) {
  device_ = &device;
  gradient_of_.assign(program_.slots.size(), 0);
  std::size_t p = 0;
  for (std::size_t i = 0; i < program_.slots.size(); ++i) {
    if (program_.slots[i].gradient != plan::kNoBuffer) gradient_of_[i] = p++;
  }
  streamed_.emplace(std::move(gradients), owners_of_gradients(), ranks_, program_.shards, program_.reduce,
                    program_.reduce_rounding, seed);
}

void SharedWeights::reduce(std::size_t i, Matrix gradient, Matrix sent) {
  const std::vector<plan::Reduction>& all = program_.reductions;
  streamed_->add(device_->host(), gradient_of_[all[i].slot], gradient, sent);
  if (all[i].last) streamed_->start(device_->host());
}

void SharedWeights::await_reduction(std::size_t i) {
  streamed_->await(gradient_of_[program_.reductions[i].slot]);
}

std::optional<Matrix> SharedWeights::gradient(std::size_t slot) const {
  if (!streamed_) return std::nullopt;
  return streamed_->sum(gradient_of_[slot]);
}

void SharedWeights::send(const runtime::WeightSet& weights) {
  struct Piece {
    int owner;
    std::span<std::byte> bytes;
  };
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < program_.slots.size(); ++i) {
    const int owner = sharing_.owner(i);
    if (owner == plan::kEveryRank) continue;
    for (const std::span<std::byte> bytes : common(weights, i)) pieces.push_back({owner, bytes});
  }
  ranks_.run([&](comm::Messages& m) {
    for (const Piece& piece : pieces) {
      if (piece.owner != m.rank()) {
        m.receive(piece.owner, piece.bytes);
        continue;
      }
      for (int to = 0; to < m.size(); ++to) {
        if (to != m.rank()) m.send(to, piece.bytes);
      }
    }
    m.complete();
  });
}

void SharedWeights::complete(std::span<kernels::GradientNorm> norms) {
  std::vector<std::vector<kernels::GradientNorm>> all;
  for (const comm::Bytes& of_rank : ranks_.all_gather(std::as_bytes(norms)))
    all.push_back(comm::values_of<kernels::GradientNorm>(of_rank));
  std::size_t g = 0;  // gradients are in the order of the slots that have an owner
  for (const int owner : sharing_.owners) {
    if (owner == plan::kEveryRank) continue;
    norms[g] = all[static_cast<std::size_t>(owner)][g];
    ++g;
  }
}

std::optional<BrokenWeight> SharedWeights::first(const std::optional<BrokenWeight>& own) {
  comm::Bytes told;
  if (own) comm::append(told, *own);
  std::optional<BrokenWeight> lowest;
  for (const std::vector<std::byte>& of_rank : ranks_.all_gather(told)) {
    if (of_rank.empty()) continue;
    std::span<const std::byte> in = of_rank;
    const auto other = comm::take<BrokenWeight>(in);
    if (!lowest || other.slot < lowest->slot) lowest = other;
  }
  return lowest;
}

std::vector<runtime::ParameterHealth> SharedWeights::gather(std::vector<runtime::ParameterHealth> own) {
  comm::Bytes told;
  for (const runtime::ParameterHealth& h : own) {
    const auto slot = std::ranges::find(program_.slots, h.name, &plan::Slot::name);
    comm::append(told, static_cast<std::size_t>(slot - program_.slots.begin()));
    comm::append(told, static_cast<const runtime::HealthFigures&>(h));
    comm::append(told, h.distributions != nullptr);
    if (h.distributions != nullptr) comm::append(told, *h.distributions);
  }
  std::vector<std::pair<std::size_t, runtime::ParameterHealth>> all;
  for (const std::vector<std::byte>& of_rank : ranks_.all_gather(told)) {
    for (std::span<const std::byte> in = of_rank; !in.empty();) {
      auto& [slot, health] = all.emplace_back();
      slot = comm::take<std::size_t>(in);
      static_cast<runtime::HealthFigures&>(health) = comm::take<runtime::HealthFigures>(in);
      health.name = program_.slots[slot].name;
      if (!comm::take<bool>(in)) continue;
      health.distributions =
          std::make_shared<runtime::ParameterDistributions>(comm::take<runtime::ParameterDistributions>(in));
    }
  }
  std::ranges::sort(all, {}, [](const auto& h) { return h.first; });
  std::vector<runtime::ParameterHealth> in_order;
  for (auto& [slot, health] : all) in_order.push_back(std::move(health));
  return in_order;
}

}  // namespace mantissa::train
