#include "mantissa/train/run/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state_weights.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/weights/frozen_hash.h"
#include "mantissa/train/run/blocked_states.h"
#include "mantissa/train/run/data_hash.h"
#include "mantissa/train/run/shared_state.h"

namespace mantissa::run {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 16;  // elements of a state that are converted at once

/// A state that is being restored.
struct Saved {
  const train::Trainer& trainer;
  const io::StateReader& state;
  const std::filesystem::path& folder;
};

/// Converts elements [first, first + n) of a tensor whose format has changed, or of another one from which
/// the memory begins.
void convert_part(const Saved& from, const train::Trainer::NamedMemory& m, const io::TensorInfo& info,
                  std::size_t first, std::size_t n) {
  const Scalar type = *io::scalar_of(info.dtype);
  const std::size_t saved_bytes = mantissa::bytes_of(type), kept_bytes = mantissa::bytes_of(m.type);
  const auto& host = from.trainer.device().host();
  const auto elements = static_cast<std::int64_t>(n);
  std::vector<std::byte> saved(n * saved_bytes);
  std::vector<double> wide(n), kept(n);
  from.state.tensors().read(info.name, saved, first * saved_bytes);
  kernels::cast(host, elements, saved.data(), type, wide.data(), Scalar::f64);
  std::vector<std::byte> rounded(n * kept_bytes);
  kernels::cast(host, elements, wide.data(), Scalar::f64, rounded.data(), m.type);
  kernels::cast(host, elements, rounded.data(), m.type, kept.data(), Scalar::f64);
  m.write(first * kept_bytes, rounded);
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(wide[i]) || std::isfinite(kept[i])) continue;
    throw DtypeError(fmt::format(
        "{}: is {} in {} and {:g} at element {}, but policy \"{}\" keeps {} here, with the largest value "
        "{:g}; resume with the policy that wrote the state, or keep this in bf16 or f32",
        m.name, io::safetensors_name(info.dtype), from.folder.string(), wide[i], first + i,
        from.trainer.config().policy.short_line(), name(m.type), traits(m.type).max_finite));
  }
}

/// Reads a tensor whose format has not changed.
void read_bytes(const Saved& from, const train::Trainer::NamedMemory& m) {
  if (m.device == nullptr) return from.state.tensors().read(m.name, m.bytes);
  std::vector<std::byte> saved(m.bytes.size());
  from.state.tensors().read(m.name, saved);
  m.write(0, saved);
}

/// Throws if the frozen weights in quantized blocks are not those of the run that wrote the state.
void check_frozen(const train::Trainer& trainer, const io::StateHeader& header,
                  const std::filesystem::path& folder) {
  const std::string &before = header.frozen_xxh64, &now = trainer.frozen_hash();
  if (before == now) return;
  if (before.empty() || now.empty()) {
    throw ConfigError(
        fmt::format("{}: the run held {} frozen weights in quantized blocks, and this config holds {}. Fix: "
                    "resume with the run's own config.toml",
                    folder.string(), before.empty() ? "no" : "its", now.empty() ? "none" : "some"));
  }
  throw FileError(fmt::format(
      "{}: the frozen weights in quantized blocks have the hash {}, but those made from {} have {}: "
      "the model or their format has changed. Fix: resume with the model and the config.toml of the "
      "run",
      folder.string(), before, trainer.source().weights.string(), now));
}

/// Throws if other frozen weights, in the same formats, or the rows of the data are not those of the run that
/// wrote the state.
void check_inputs(train::Trainer& trainer, const io::StateHeader& header,
                  const std::filesystem::path& folder) {
  const config::RunConfig& config = trainer.config();
  if (!header.fixed_xxh64.empty() && header.policy == config.policy.line()) {
    const std::string now = weights::hash_of_fixed(trainer.weights());
    if (now != header.fixed_xxh64) {
      throw FileError(fmt::format(
          "{}: the frozen weights have the hash {}, but those of {} have {}: the model has changed. "
          "Fix: resume with the model of the run",
          folder.string(), header.fixed_xxh64, trainer.source().weights.string(), now));
    }
  }
  const text::Dataset* data = trainer.task().dataset();
  if (header.data_xxh64.empty() || data == nullptr) return;
  const text::Dataset& rows = data->at_step(header.step);
  if (&rows != &data->at_step(header.step + 1)) return;  // its stage has ended
  // A stage that was added or changed may hold out rows on which an earlier stage trained.
  if (config::parse_config(header.config_toml, "state.json").run.stages != config.run.stages) return;
  const std::string now = hash_of_rows(config, rows);
  if (now == header.data_xxh64 || now.empty()) return;
  throw FileError(fmt::format(
      "{}: the training rows of {} have the hash {}, but the run that wrote the state had rows with "
      "{}: the data have changed, so the next steps would have other rows. Fix: resume with the data "
      "of the run, or train on the new data in a new run, which can begin with the weights of this "
      "one (model.path)",
      folder.string(), trainer.task().name(), now, header.data_xxh64));
}

/// Reads masters, moments and compensations. Rounds or widens them if the precision has changed. `scales` is
/// the memory of the scales of a state in blocks, or null.
void read_memory(const Saved& from, const train::Trainer::NamedMemory& m,
                 const train::Trainer::NamedMemory* scales) {
  const io::TensorInfo* info = from.state.tensors().find(m.name);
  if (info == nullptr && m.begins_at_zero) return;                  // keeps its initial zeros
  if (info == nullptr && m.name.starts_with(io::kStateAverages)) {  // a new average begins at the weight
    info =
        from.state.tensors().find(std::string(io::kMasterPrefix) + m.name.substr(io::kStateAverages.size()));
  }
  if (info != nullptr && m.newest_first && info->dtype == io::dtype_of(m.type) && info->shape.size() == 1) {
    std::vector<std::byte> saved(info->end - info->begin);
    from.state.tensors().read(m.name, saved);
    saved.resize(std::min(saved.size(), m.bytes.size()));
    return m.write(0, saved);
  }
  if (info == nullptr || info->shape != m.shape) {
    throw FileError(
        fmt::format("{}: tensor \"{}\" is missing or has another shape than in this config's model; resume "
                    "with the run's own config.toml",
                    from.folder.string(), m.name));
  }
  if (scales != nullptr || holds_blocks(from.state, m.name))
    return read_blocked_state(from.trainer, from.state, m, scales);
  // A value saved as F32 can be outside the range of tf32.
  if (io::scalar_of(info->dtype) == m.type && info->name == m.name) return read_bytes(from, m);
  if (!io::scalar_of(info->dtype)) {
    throw DtypeError(
        fmt::format("{}: is {} in {}, but policy \"{}\" keeps {} here; resume from another state, or start "
                    "over with --overwrite",
                    m.name, io::safetensors_name(info->dtype), from.folder.string(),
                    from.trainer.config().policy.short_line(), name(m.type)));
  }
  const std::size_t count = static_cast<std::size_t>(info->count());
  for (std::size_t first = 0; first < count; first += kPart)
    convert_part(from, m, *info, first, std::min(kPart, count - first));
}

constexpr std::string_view kTaskPrefix = "task.";  // of the tensors and counters of a task

void restore_task(train::Task& task, const io::StateReader& state) {
  train::TaskState saved;
  for (const io::TensorInfo& info : state.tensors().tensors()) {
    if (!info.name.starts_with(kTaskPrefix)) continue;
    train::TaskState::Tensor tensor{info.dtype, info.shape, std::vector<std::byte>(info.end - info.begin)};
    state.tensors().read(info.name, tensor.bytes);
    saved.tensors.emplace(info.name.substr(kTaskPrefix.size()), std::move(tensor));
  }
  for (const auto& [name, value] : state.header().rng) {
    if (name.starts_with(kTaskPrefix)) saved.counters.emplace(name.substr(kTaskPrefix.size()), value);
  }
  task.restore(state.header().step, saved);
}

/// Returns the number of sequences of the first `steps` steps.
std::int64_t sequences_until(const config::RunConfig& config, std::int64_t steps) {
  std::int64_t sequences = 0;
  for (std::size_t s = 0; s < config::stage_count(config); ++s) {
    const config::RunConfig stage = config::stage_config(config, s);
    sequences += std::clamp<std::int64_t>(steps - config::first_step(config, s), 0, stage.run.steps) *
                 stage.batch.global_batch_size;
  }
  return sequences;
}

}  // namespace

void check_place(const std::filesystem::path& out, const weights::ModelSource& source) {
  const auto check = [&](const std::filesystem::path& file, const char* key) {
    const std::filesystem::path from = std::filesystem::weakly_canonical(file);
    for (const char* part : {"model", "state", io::kAdapterFolder}) {
      const std::filesystem::path inside =
          from.lexically_relative(std::filesystem::weakly_canonical(out / part));
      if (inside.empty() || *inside.begin() == "..") continue;
      throw FileError(fmt::format("{}: the run would replace {}, which is there; choose another --out",
                                  (out / part).string(), key));
    }
  };
  if (!source.weights.empty() && source.memory == nullptr) check(source.weights, "model.path");
  if (source.adapter != nullptr) check(source.adapter->path(), "adapter.path");
}

std::optional<io::FoundState> choose_state(const DirectoryOptions& o) {
  std::vector<io::FoundState> states = io::find_states(o.out);
  if (!o.resume) {
    if (states.empty() || o.overwrite) return std::nullopt;
    throw FileError(
        fmt::format("{}: contains the state of step {}; --overwrite starts over, another --out keeps it",
                    o.out.string(), states.back().step),
        {{{"--resume"}, "continues from that state"}});
  }
  if (*o.resume == 0) return states.empty() ? std::nullopt : std::optional(states.back());
  std::string there;
  for (const io::FoundState& s : states) {
    if (s.step == *o.resume) return s;
    there += fmt::format(" {}", s.step);
  }
  throw FileError(fmt::format("--resume={}: {} has no state of that step; it has{}", *o.resume,
                              o.out.string(), there.empty() ? " none" : there));
}

void restore(train::Trainer& trainer, const io::StateReader& state, const std::filesystem::path& folder) {
  check_frozen(trainer, state.header(), folder);
  check_inputs(trainer, state.header(), folder);
  const train::Trainer::NamedMemory* scales = nullptr;
  const std::vector<train::Trainer::NamedMemory> memory = trainer.state_memory();
  for (const train::Trainer::NamedMemory& m : memory) {
    if (m.here() && !m.scales) read_memory({trainer, state, folder}, m, scales);
    scales = m.scales ? &m : nullptr;
  }
  const io::StateHeader& header = state.header();
  // Another policy may cure the overflows of the forward pass, so it starts a new count.
  const bool same = header.policy == trainer.config().policy.line();
  trainer.restore({.step = header.step,
                   .applied = header.applied,
                   .tokens = header.tokens,
                   .forward_overflows = same ? header.forward_overflows : 0,
                   .stage_applied = header.stage_applied},
                  header.scaler);
  restore_task(trainer.task(), state);
}

std::string hash_of_fixed(train::Trainer& trainer) {
  if (!trainer.config().policy.changes().empty()) return "";
  return weights::hash_of_fixed(trainer.weights());
}

weights::StartBase base_of(const train::Trainer& trainer, const std::string& fixed) {
  return {trainer.source().weights.string(), trainer.config().policy.line(), fixed, trainer.frozen_hash()};
}

std::string save(train::Trainer& trainer, Orders& orders, const std::filesystem::path& out, double loss,
                 const std::vector<std::string>& changes, const InputHashes& hashes, bool validates) {
  const config::RunConfig& config = trainer.config();
  io::StateHeader header;
  header.step = trainer.step();
  header.applied = trainer.applied();
  header.stage_applied = trainer.stage_applied();
  header.skipped = trainer.skipped();
  header.tokens = trainer.tokens();
  header.loss = loss;
  header.validates = validates;
  if (trainer.scaler()) {
    header.scaler = trainer.scaler()->state();
    header.forward_overflows = trainer.forward_overflows();
  }
  header.data_position = sequences_until(config, trainer.step());
  header.seed = config.run.seed;
  header.config_toml = config.to_toml();
  header.model_config = model_json(trainer, trainer.step());
  header.policy = config.policy.line();
  header.frozen_xxh64 = trainer.frozen_hash();
  header.fixed_xxh64 = hashes.fixed;
  header.data_xxh64 = hashes.rows;
  header.changes = changes;
  std::vector<io::TensorToWrite> tensors;
  for (const train::Trainer::NamedMemory& m : trainer.state_memory()) tensors.push_back(tensor_of(m));
  const train::TaskState task = trainer.task().save(trainer.step());
  for (const auto& [name, value] : task.counters) header.rng.emplace(std::string(kTaskPrefix) + name, value);
  for (const auto& [name, tensor] : task.tensors)
    tensors.push_back({std::string(kTaskPrefix) + name, tensor.dtype, tensor.shape, tensor.bytes, {}});
  return write_state(trainer, orders, out, header, tensors);
}

std::string model_json(const train::Trainer& trainer, std::int64_t step) {
  return model::to_json(trainer.model_at(step), "float32").dump();
}

}  // namespace mantissa::run
