#include "mantissa/files/io/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/core/disk/unfinished.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/safetensors_stream.h"
#include "mantissa/files/io/state_header.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeader = "state.json";
constexpr std::string_view kFiles[] = {kHeader, kStateTensors};
constexpr std::string_view kPrefix = "step-";

fs::path folder_of(const fs::path& run, std::int64_t step) {
  return run / "state" / fmt::format("{}{:08}", kPrefix, step);
}

// Returns the step in a folder's name, or null if the name is not exactly of the written form.
std::optional<std::int64_t> step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || step < 0 || name != folder_of({}, step).filename()) return std::nullopt;
  return step;
}

[[noreturn]] void damaged(const fs::path& file, const std::string& how) {
  throw FileError(fmt::format("{}: this state is damaged: {}", file.string(), how));
}

// Compares a file with its entry in state.json.
void check_file(const fs::path& folder, const nlohmann::json& listed) {
  const std::string name = listed.at("name").get<std::string>();
  const std::string checksum = listed.at("xxh64").get<std::string>();
  const std::uint64_t bytes = listed.at("bytes").get_ref<const nlohmann::json::number_unsigned_t&>();
  if (fs::path(name).filename() != name)
    damaged(folder / kHeader, fmt::format("it lists {}", name_in_quotes(name)));
  const disk::File file = disk::File::open_to_read(folder / name);
  if (file.size() != bytes)
    damaged(folder / name, fmt::format("it has {} bytes, but {} were written", file.size(), bytes));
  const std::string found = hex(hash_of(file));
  if (found != checksum)
    damaged(folder / name, fmt::format("its checksum is {}, but {} was written", found, checksum));
}

// Reads a state's header and compares all checksums, without loading tensors.
StateHeader open_checked(const fs::path& folder) {
  nlohmann::json json = read_json_file(folder / kHeader);
  try {
    StateHeader header = open_sealed(json, folder / kHeader);
    bool tensors = false;
    for (const nlohmann::json& listed : json.at("files")) {
      check_file(folder, listed);
      tensors = tensors || listed.at("name") == kStateTensors;
    }
    if (!tensors) damaged(folder / kHeader, fmt::format("it does not list {}", kStateTensors));
    return header;
  } catch (const nlohmann::json::exception&) {
    damaged(folder / kHeader, "an entry is missing or of the wrong type");
  }
}

// Returns the newest intact state before the one in `folder`.
std::optional<FoundState> intact_state_before(const fs::path& folder) {
  const std::optional<std::int64_t> step = step_of(folder);
  std::vector<FoundState> states = find_states(folder.parent_path().parent_path());
  std::reverse(states.begin(), states.end());
  for (const FoundState& state : states) {
    if (!step || state.step >= *step) continue;
    try {
      open_checked(state.path);
      return state;
    } catch (const FileError&) {
      continue;
    }
  }
  return std::nullopt;
}

/// Removes a state, unless somebody has put other files into it. A surplus state must not stop a run: returns
/// why it stays, or "".
std::string remove_state(const fs::path& folder) {
  try {
    disk::remove_whole(folder, kFiles);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

/// Removes what killed processes left in `run`, and the first of `states`; as many as are to be kept stay.
/// Returns why another one stays, or "".
std::string remove_surplus(const fs::path& run, const std::vector<FoundState>& states, int keep) {
  std::string why = remove_abandoned_states(run);
  const std::size_t kept = std::min(states.size(), static_cast<std::size_t>(std::max(keep, 1)));
  for (std::size_t i = 0; i + kept < states.size(); ++i) {
    const std::string stays = remove_state(states[i].path);
    if (why.empty()) why = stays;
  }
  return why;
}

}  // namespace

std::vector<FoundState> find_states(const fs::path& run) {
  std::vector<FoundState> states;
  if (!disk::exists(run / "state")) return states;
  for (const fs::path& folder : disk::entries(run / "state")) {
    const std::optional<std::int64_t> step = step_of(folder);
    if (step && disk::is_directory(folder)) states.push_back({*step, folder});
  }
  std::ranges::sort(states, {}, &FoundState::step);
  return states;
}

void finish_replaced_states(const fs::path& run) {
  if (disk::is_link(run / "state")) {
    throw FileError(
        fmt::format("{}: is a link, and a run removes states from its own directory only. Fix: put the "
                    "directory in its place, or choose another run directory",
                    (run / "state").string()));
  }
  if (!disk::exists(run / "state")) return;
  for (const fs::path& entry : disk::entries(run / "state")) {
    if (entry.extension() != disk::kReplaced) continue;
    const fs::path state = entry.parent_path() / entry.stem();
    if (step_of(state)) disk::finish_replacement(state, kFiles);
  }
}

std::string remove_abandoned_states(const fs::path& run) {
  return disk::exists(run / "state") ? disk::remove_abandoned(run / "state", kFiles) : "";
}

void check_states_after(const fs::path& run, std::int64_t step) {
  for (const FoundState& state : find_states(run)) {
    if (state.step > step) disk::check_replaceable(state.path, disk::kState, kFiles);
  }
  if (!disk::exists(run / "state")) return;
  for (const fs::path& entry : disk::entries(run / "state")) {
    const fs::path whole = disk::final_name(entry);
    if (whole != entry && step_of(whole).value_or(step) > step) disk::check_unfinished(whole, kFiles);
  }
}

std::string keep_newest_states(const fs::path& run, int keep) {
  return remove_surplus(run, find_states(run), keep);
}

namespace {

/// Completes a state whose tensors are in `folder`, and removes surplus ones. Returns why one stays, or "".
std::string commit_state(const fs::path& run, const StateHeader& header, disk::AtomicDirectory& folder,
                         const WrittenFile& written, int keep) {
  nlohmann::json json = json_of_header(header);
  json["files"] = {{{"name", kStateTensors}, {"bytes", written.bytes}, {"xxh64", hex(written.file_hash)}}};
  disk::write_file_atomic(folder.beside() / kHeader, sealed(json));
  folder.commit();
  std::vector<FoundState> states = find_states(run);
  std::erase_if(states, [&](const FoundState& state) { return state.step > header.step; });
  return remove_surplus(run, states, keep);
}

}  // namespace

std::string write_state(const fs::path& run, const StateHeader& header,
                        std::span<const TensorToWrite> tensors, int keep) {
  disk::AtomicDirectory folder(folder_of(run, header.step), disk::kState, kFiles);
  Hash64 data;
  const WrittenFile written = stream_safetensors(folder.beside() / kStateTensors, tensors, {}, data);
  return commit_state(run, header, folder, written, keep);
}

struct SharedState::Impl {
  fs::path run;
  StateHeader header;
  disk::AtomicDirectory folder{folder_of(run, header.step), disk::kState, kFiles};
  PlacedSafetensors tensors;
  WrittenFile written;

  Impl(const fs::path& of, StateHeader h, std::span<const TensorToWrite> t)
      : run(of), header(std::move(h)), tensors(folder.beside() / kStateTensors, t) {}
};

SharedState::SharedState(const fs::path& run, const StateHeader& header,
                         std::span<const TensorToWrite> tensors)
    : impl_(std::make_unique<Impl>(run, header, tensors)) {}

SharedState::~SharedState() = default;

const fs::path& SharedState::file() const {
  return impl_->tensors.path();
}

std::uint64_t SharedState::offset(std::size_t tensor) const {
  return impl_->tensors.offset(tensor);
}

void SharedState::read_back(const SeePiece& sees) {
  impl_->written = impl_->tensors.commit(sees);
}

std::string SharedState::commit(int keep) {
  return commit_state(impl_->run, impl_->header, impl_->folder, impl_->written, keep);
}

void remove_states_after(const fs::path& run, std::int64_t step) {
  for (const FoundState& state : find_states(run)) {
    if (state.step > step) disk::remove_whole(state.path, kFiles);
  }
}

StateReader::StateReader(const fs::path& state) {
  try {
    header_ = open_checked(state);
    tensors_.emplace(state / kStateTensors);
  } catch (const FileError& error) {
    if (const std::optional<FoundState> before = intact_state_before(state)) {
      throw FileError(fmt::format("{}; an earlier state is intact: {}", error.what(), before->path.string()),
                      {{{fmt::format("--resume={}", before->step)}}});
    }
    if (dynamic_cast<const disk::ReadError*>(&error) != nullptr) throw;  // it may be intact
    throw FileError(
        fmt::format("{}; no earlier state is intact: train again with --overwrite", error.what()));
  }
}

std::string amax_of_state(const SafetensorsReader& state) {
  constexpr std::string_view kPrefix = "amax.";
  std::map<std::string, float> magnitudes;
  for (const TensorInfo& tensor : state.tensors()) {
    if (!tensor.name.starts_with(kPrefix) || tensor.dtype != Dtype::f32) continue;
    const std::string_view name = kept_magnitude(std::string_view(tensor.name).substr(kPrefix.size()));
    if (name.empty()) continue;
    std::vector<float> history(static_cast<std::size_t>(tensor.count()));
    state.read(tensor, std::as_writable_bytes(std::span(history)));
    const float amax = history.empty() ? 0 : *std::ranges::max_element(history);
    if (!(amax > 0) || !std::isfinite(amax)) continue;
    float& kept = magnitudes[std::string(name)];
    kept = std::max(kept, amax);
  }
  return magnitudes.empty() ? "" : nlohmann::json(magnitudes).dump();
}

}  // namespace mantissa::io
