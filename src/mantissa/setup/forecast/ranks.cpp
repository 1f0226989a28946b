#include "mantissa/setup/forecast/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/engine/comm/streamed_sum.h"
#include "mantissa/engine/plan/completions.h"
#include "mantissa/files/io/json.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/forecast/shared_rows.h"
#include "mantissa/setup/forecast/step_timeline.h"

namespace mantissa::forecast {
namespace {

/// The parameters that have a gradient.
struct Trained {
  std::vector<std::size_t> slots;
  std::vector<std::int64_t> counts;
  std::vector<int> owners;  // empty: no weights are divided
};

Trained trained(const programs::RunPart& part) {
  Trained all;
  const plan::Program& program = *part.program;
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    if (program.slots[i].gradient == plan::kNoBuffer) continue;
    all.slots.push_back(i);
    all.counts.push_back(program.slots[i].shape.count());
    if (part.sharing.divides()) all.owners.push_back(part.sharing.owner(i));
  }
  return all;
}

double gradient_bytes(const programs::RunPart& part, const Trained& all) {
  const plan::Program& program = *part.program;
  const auto [rank, ranks, parts] = part.rank;
  double elements = 0;
  if (!program.reductions.empty()) {
    for (std::size_t p = 0; p < all.counts.size(); ++p) {
      if (all.owners[p] != rank)
        elements += static_cast<double>(all.counts[p]) * static_cast<double>(program.shards / ranks);
    }
    return elements * static_cast<double>(bytes_of(comm::sum_format(program.reduce)));
  }
  const auto pieces = static_cast<double>(
      comm::pieces_of(comm::shards_of(rank, ranks, program.shards, parts), program.shards).size());
  for (const std::vector<comm::Slice>& group : comm::groups_of(all.counts, ranks, program.reduce)) {
    for (const comm::Slice& slice : group) {
      const auto own = static_cast<double>(comm::part_of_slice(slice, all.owners, rank, ranks).count());
      elements += pieces * (static_cast<double>(slice.elements.count()) - own);
      if (all.owners.empty()) elements += own * (ranks - 1);
    }
  }
  return elements * static_cast<double>(bytes_of(comm::sum_format(program.reduce)));
}

/// Returns the bytes of what every rank keeps of a parameter, besides scales.
double common_bytes(const plan::Program& program, const std::vector<bool>& read, std::size_t slot) {
  const plan::Slot& s = program.slots[slot];
  if (s.gathered) return 0;
  double bytes = 0;
  for (const plan::BufferId copy : s.copies) bytes += static_cast<double>(program.buffer(copy).bytes);
  if (read[static_cast<std::size_t>(s.master_buffer)])
    bytes += static_cast<double>(program.buffer(s.master_buffer).bytes);
  return bytes;
}

}  // namespace

std::size_t sums_bytes(const programs::RunPart& part) {
  const plan::Program& program = *part.program;
  const auto [rank, ranks, parts] = part.rank;
  const Trained all = trained(part);
  if (!program.reductions.empty()) {
    std::vector<comm::Gradient> gradients;
    for (const std::size_t i : all.slots) {
      const plan::Buffer& b = program.buffer(program.slots[i].gradient);
      gradients.push_back({{nullptr, b.type, b.shape.last()}, b.shape.count()});
    }
    std::vector<std::vector<std::size_t>> together;
    bool starts = true;
    for (const plan::Reduction& reduction : program.reductions) {
      if (std::exchange(starts, reduction.last)) together.emplace_back();
      together.back().push_back(
          static_cast<std::size_t>(std::ranges::find(all.slots, reduction.slot) - all.slots.begin()));
    }
    return comm::StreamedSum::bytes(gradients, all.owners, rank, ranks, program.shards, program.reduce,
                                    together);
  }
  std::size_t bytes = 0;
  for (const std::int64_t count : all.counts)
    bytes += comm::shard_sum_bytes(count, comm::shards_of(rank, ranks, program.shards, parts), program.shards,
                                   program.reduce);
  if (ranks == 1) return bytes;
  std::size_t staging = 0;
  std::vector<std::int64_t> counts;  // of parameters that start together
  std::vector<int> owners;
  for (const plan::Completion& c : plan::completions(program)) {
    counts.push_back(all.counts[c.gradient]);
    if (!all.owners.empty()) owners.push_back(all.owners[c.gradient]);
    if (!c.last) continue;
    staging = std::max(
        staging, comm::staging_bytes(counts, owners, rank, ranks, program.shards, program.reduce, parts));
    counts.clear();
    owners.clear();
  }
  return bytes + staging;
}

double updated_bytes(const programs::RunPart& part, int rank) {
  const std::vector<bool> read = plan::read_by_steps(*part.program);
  double bytes = 0;
  for (std::size_t i = 0; i < part.program->slots.size(); ++i) {
    if (part.program->slots[i].gradient != plan::kNoBuffer && part.sharing.owner(i) == rank)
      bytes += common_bytes(*part.program, read, i);
  }
  return bytes;
}

SentBytes sent_bytes(const programs::RunPart& part, const config::RunConfig& config) {
  const auto [rank, ranks, parts] = part.rank;
  SentBytes sent;
  if (ranks == 1) return sent;
  const Trained all = trained(part);
  sent.gradients = gradient_bytes(part, all);
  const double others = ranks - 1;
  sent.weights = others * updated_bytes(part, rank);
  const double micro_batches = static_cast<double>(config.batch.global_batch_size) /
                               static_cast<double>(config.batch.micro_batch_size * ranks / parts);
  for (const plan::Gather& g : part.program->gathers) {
    const plan::Buffer& b = part.program->buffer(g.buffer);
    // Held-out rows have a head of their own, which a step does not run.
    if (part.program->steps[g.first].phase == graph::Phase::evaluate) continue;
    if (part.sharing.owner(static_cast<std::size_t>(b.slot)) == rank)
      sent.gathered += others * micro_batches * static_cast<double>(b.bytes);
  }
  if (parts > 1) {
    const SharedRowBytes of_rows = shared_row_bytes(
        *part.program, config.batch.micro_batch_size * config::rows_per_item(config), rank % parts, parts);
    sent.keys = micro_batches * of_rows.keys;
    sent.states = micro_batches * of_rows.states;
  }
  return sent;
}

Network read_network(const std::filesystem::path& path) {
  const nlohmann::json file =
      io::parse_json(disk::read_text_file(path, std::uint64_t{1} << 20), path.string());
  const auto number = [&](const char* key) {
    const nlohmann::json::json_pointer at(fmt::format("/network/{}", key));
    const bool known =
        file.is_object() && file.contains(at) && file[at].is_number() && file[at].get<double>() > 0;
    if (known) return file[at].get<double>();
    throw FileError(
        "{}: has no network.{}. Fix: write it with mpirun -n 2 mantissa doctor --json, with the two ranks on "
        "different machines",
        path.string(), key);
  };
  return {number("latency_seconds"), number("bytes_per_second")};
}

const RankForecast& RanksForecast::largest() const {
  return *std::ranges::max_element(of, {}, [](const RankForecast& r) { return r.memory.peak(); });
}

std::optional<double> RanksForecast::hidden() const {
  if (!sending || *sending <= 0) return std::nullopt;
  return std::max(0.0, 1 - *waiting / *sending);
}

namespace {

/// Returns the rank that owns the most bytes.
int largest_owner(const programs::RunPart& part, int ranks) {
  std::vector<std::size_t> owned(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < part.whole->slots.size(); ++i) {
    const int owner = part.sharing.owner(i);
    if (owner != plan::kEveryRank)
      owned[static_cast<std::size_t>(owner)] += part.whole->buffer(part.whole->slots[i].master_buffer).bytes;
  }
  return static_cast<int>(std::ranges::max_element(owned) - owned.begin());
}

}  // namespace

RanksForecast forecast_ranks(const config::RunConfig& config, const model::ModelConfig& model,
                             const runtime::Device& device, int ranks, int nodes,
                             const std::optional<Network>& network, const Machine& machine,
                             const MemoryForecast& alone, std::span<const OtherPass> passes) {
  config::check_ranks(config, ranks);
  constexpr int kAll = 16;
  // Measured with 2 and 4 ranks on one machine: 10 to 11 MB of Open MPI 4.1.4, 14 MB of MPICH 4.0.2.
  constexpr std::size_t kMpi = 12'000'000;
  RanksForecast f{.ranks = ranks, .nodes = nodes, .stage = config.distributed.zero};
  config::RunConfig own = config::stage_config(config, 0);
  config::RunConfig share = own;
  share.batch.global_batch_size /= ranks / config.distributed.sequence_shards;
  const std::size_t process = alone.process - process_bytes(passes);  // add_memory() adds them
  double training = 0;                                                // seconds of a rank
  const auto add = [&](int rank) {
    const std::vector<programs::RunPart> parts =
        programs::compile_parts(config, model, device, {rank, ranks});
    RankForecast& r = f.of.emplace_back(RankForecast{rank, forecast_memory(parts, 0, process + kMpi)});
    r.memory.data = alone.data;
    add_memory(r.memory, passes, programs::largest_arena(parts));
    r.sent = sent_bytes(parts.front(), own);
    if (rank > 0) return parts;
    f.streams = !parts.front().program->reductions.empty();
    training = forecast_seconds(*parts.front().program, share, machine);
    return parts;
  };
  const std::vector<programs::RunPart> first = add(0);
  if (ranks <= kAll) {
    for (int rank = 1; rank < ranks; ++rank) add(rank);
  } else if (const int most = first.front().sharing.divides() ? largest_owner(first.front(), ranks) : 0;
             most > 0) {
    add(most);
  }
  const double others = forecast_seconds(passes, share, machine, ranks);
  f.computing = training + others;
  if (!network) return f;
  double keys = 0;
  for (const RankForecast& r : f.of) keys = std::max(keys, r.sent.keys + r.sent.states);
  const StepTimeline times =
      forecast_timeline(first.front(), share, nodes, *network, machine, training, keys);
  f.seconds = times.step + others;
  f.sending = times.sending;
  f.waiting = times.waiting;
  return f;
}

}  // namespace mantissa::forecast
