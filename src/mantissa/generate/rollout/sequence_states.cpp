#include "mantissa/generate/rollout/sequence_states.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/files/io/results.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::rollout {
namespace {

constexpr const char *kKind = io::kKindKey, *kKindName = "sequence states", *kModel = "mantissa.model",
                     *kPolicy = "mantissa.policy", *kFed = "mantissa.fed", *kIds = "ids", *kNotes = "note.";

/// The cure of a file that is not one of states.
[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw FileError("{}: {}. Fix: write it again with --save-state", file.string(), what);
}

/// Throws for a number that no sequence leaves behind: generation stops at the first one.
void check_finite(const SequenceStates::State& state, const std::filesystem::path& file) {
  constexpr std::size_t kPiece = 4096;
  const std::size_t count = state.bytes.size() / bytes_of(state.type);
  std::vector<double> values(kPiece);
  for (std::size_t first = 0; first < count; first += kPiece) {
    const std::size_t n = std::min(kPiece, count - first);
    load_row(state.bytes.data(), state.type, first, n, values.data());
    for (std::size_t i = 0; i < n; ++i) {
      if (std::isfinite(values[i])) continue;
      throw FileError(
          "{}: expected finite values, got {} at element {} of \"{}\" [{}]. Fix: restore the file, or write it "
          "again with --save-state",
          file.string(), values[i], first + i, state.name, fmt::join(state.shape, ", "));
    }
  }
}

/// Returns the shape of one slot of a state that has taken in `fed` tokens.
std::vector<std::int64_t> shape_of(const plan::Buffer& state, std::int64_t fed) {
  if (state.keeps == graph::SequenceState::prefix) return {state.shape.last()};
  return {fed, state.shape.last()};
}

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

bool is_states(const std::filesystem::path& file) {
  try {
    const io::SafetensorsReader reader(file);
    const auto kind = reader.metadata().find(kKind);
    return kind != reader.metadata().end() && kind->second == kKindName;
  } catch (const disk::ReadError&) {
    throw;
  } catch (const FileError&) {
    return false;
  }
}

}  // namespace

std::vector<std::filesystem::path> states_inputs(const weights::ModelSource& source) {
  const bool whole = !source.directory.empty() && disk::exists(source.directory / "config.json");
  const std::filesystem::path inputs[] = {whole ? source.directory : "", source.weights};
  return disk::with_files(inputs);
}

void check_states_place(const std::filesystem::path& file, std::optional<bool> overwrite,
                        std::span<const std::filesystem::path> inputs) {
  const bool again = is_states(file);  // a file of states in the model's directory is not a part of the model
  disk::check_output(
      {file, disk::Shape::stream, again || overwrite == true, "--save-state", overwrite.has_value()},
      again ? std::span<const std::filesystem::path>() : inputs);
}

void write_states(const std::filesystem::path& file, const SequenceStates& states, const StatesOrigin& origin,
                  const StatesNotes& notes) {
  std::vector<io::TensorToWrite> tensors;
  tensors.push_back({.name = kIds,
                     .dtype = io::Dtype::i32,
                     .shape = {std::ssize(states.ids)},
                     .bytes = std::as_bytes(std::span(states.ids))});
  for (const SequenceStates::State& s : states.states)
    tensors.push_back({.name = s.name, .dtype = io::dtype_of(s.type), .shape = s.shape, .bytes = s.bytes});
  std::map<std::string, std::string> metadata = {{kKind, kKindName},
                                                 {kModel, origin.model},
                                                 {kPolicy, origin.policy},
                                                 {kFed, std::to_string(states.fed)}};
  for (const auto& [name, text] : notes) metadata[kNotes + name] = text;
  io::write_safetensors(disk::given(file, true), tensors, metadata);
}

StatesFile read_states(const std::filesystem::path& file) {
  const io::SafetensorsReader reader(file);
  const std::map<std::string, std::string>& metadata = reader.metadata();
  const auto entry = [&](const char* key) {
    const auto it = metadata.find(key);
    return it == metadata.end() ? std::string() : it->second;
  };
  if (entry(kKind) != kKindName) fail(file, "is not a file of states");
  StatesFile out;
  out.origin = {entry(kModel), entry(kPolicy)};
  for (const auto& [key, text] : metadata) {
    if (key.starts_with(kNotes)) out.notes[key.substr(std::string_view(kNotes).size())] = text;
  }
  SequenceStates& s = out.states;
  s.where = file.string();
  s.policy = out.origin.policy;
  const io::TensorInfo* const ids = reader.find(kIds);
  if (ids == nullptr || ids->dtype != io::Dtype::i32 || ids->shape.size() != 1 || ids->count() < 1)
    fail(file, "has no \"ids\" of the sequence");
  s.ids.resize(static_cast<std::size_t>(ids->count()));
  reader.read(*ids, std::as_writable_bytes(std::span(s.ids)));
  const std::string fed = entry(kFed);
  const auto [end, error] = std::from_chars(fed.data(), fed.data() + fed.size(), s.fed);
  const bool whole = error == std::errc() && end == fed.data() + fed.size();
  if (!whole || s.fed < 0 || s.fed > std::ssize(s.ids) || s.fed + 1 < std::ssize(s.ids))
    fail(file, fmt::format("has taken in {} of {} tokens", in_quotes(fed), s.ids.size()));
  for (const io::TensorInfo& t : reader.tensors()) {
    if (t.name == kIds) continue;
    const std::optional<Scalar> type = io::scalar_of(t.dtype);
    if (!type) fail(file, fmt::format("\"{}\" is {}", t.name, io::safetensors_name(t.dtype)));
    SequenceStates::State state{t.name, *type, t.shape, std::vector<std::byte>(t.end - t.begin)};
    reader.read(t, state.bytes);
    check_finite(state, file);
    s.states.push_back(std::move(state));
  }
  return out;
}

void check_model(const StatesFile& file, const StatesOrigin& here, std::int64_t vocabulary) {
  if (file.origin.model != here.model) {
    throw FileError(
        "{}: the states are of other weights, sizes, adapter or base than this model's: their hashes are {}, and "
        "this model's {}. Fix: use the model that they were saved with",
        file.states.where, file.origin.model, here.model);
  }
  for (std::size_t i = 0; i < file.states.ids.size(); ++i) {
    const std::int32_t id = file.states.ids[i];
    if (id < 0 || id >= vocabulary)
      fail(file.states.where,
           fmt::format("id {} at position {} of \"ids\" is outside the model's vocabulary (0 … {})", id, i,
                       vocabulary - 1));
  }
}

void check_states(const SequenceStates& states, const plan::Program& program) {
  constexpr const char* kSameModel = "Fix: use the model that they were saved with";
  std::size_t wanted = 0;
  for (const plan::Buffer& b : program.buffers) {
    if (b.home != plan::Home::state) continue;
    ++wanted;
    const auto state = std::ranges::find(states.states, b.name, &SequenceStates::State::name);
    if (state == states.states.end())
      throw ShapeError("{}: \"{}\" is missing, which this model keeps. {}", states.where, b.name, kSameModel);
    // Files have no tf32: its values are those of f32 in memory too.
    if (io::dtype_of(state->type) != io::dtype_of(b.type)) {
      if (states.policy == name_of(program.policy))
        fail(states.where, fmt::format("\"{}\" is {}, and the policy of the file keeps it in {}", b.name,
                                       name(state->type), name(b.type)));
      throw DtypeError("{}: \"{}\" is {}, and this policy keeps it in {}. Fix: --precision '{}'",
                       states.where, b.name, name(state->type), name(b.type), states.policy);
    }
    const std::vector<std::int64_t> shape = shape_of(b, states.fed);
    if (state->shape == shape &&
        state->bytes.size() == static_cast<std::size_t>(count_of(shape)) * bytes_of(state->type))
      continue;
    throw ShapeError("{}: \"{}\" is [{}], but this model keeps [{}]. {}", states.where, b.name,
                     fmt::join(state->shape, ", "), fmt::join(shape, ", "), kSameModel);
  }
  if (wanted != states.states.size()) {
    throw ShapeError("{}: has {} states, but this model keeps {}. {}", states.where, states.states.size(),
                     wanted, kSameModel);
  }
  if (const std::string here = name_of(program.policy); !states.policy.empty() && states.policy != here) {
    throw ConfigError(
        "{}: the states were made under another policy, so they are not what {} would compute. Fix: "
        "--precision '{}'",
        states.where, here, states.policy);
  }
}

}  // namespace mantissa::rollout
