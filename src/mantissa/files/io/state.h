// The state from which a run resumes with the same bits. state/step-00000100/ holds state.json (the progress
// and a checksum of every file) and state.safetensors (masters, moments, compensations).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/precision/policy/loss_scaler.h"

namespace mantissa::io {

/// The progress of a run after `step`.
struct StateHeader {
  std::int64_t step = 0;           // updates attempted
  std::int64_t applied = 0;        // updates applied; the learning rate and the bias correction count these
  std::int64_t skipped = 0;        // updates skipped for an overflow
  std::int64_t stage_applied = 0;  // of these, before the stage of `step`, whose schedule counts the others
  std::int64_t tokens = 0;         // since the start
  std::int64_t data_position = 0;  // sequences consumed
  double loss = 0;                 // of `step`; NaN if it was not finite
  bool validates = false;          // a stop came before the validation that is due after `step`
  std::uint64_t seed = 0;
  std::map<std::string, std::uint64_t>
      rng;  // counters, by name, of generators that are not keyed by the step
  std::optional<precision::ScalerState> scaler;  // if the policy has a loss scale
  std::int64_t forward_overflows = 0;  // skipped steps in a row, up to `step`, that overflowed in the
                                       // forward pass; only with a scaler
  // Hashes of what a state does not contain, "" if there is none or an older version wrote the state: frozen
  // weights in quantized blocks, other frozen weights in the formats of `policy`, and the rows of the data.
  std::string frozen_xxh64 = {};
  std::string fixed_xxh64 = {};
  std::string data_xxh64 = {};
  std::string config_toml;           // resolved
  std::string model_config;          // config.json
  std::string policy;                // the policy's line
  std::vector<std::string> changes;  // changes made by --resume, one entry each, oldest first
  friend bool operator==(const StateHeader&, const StateHeader&) = default;
};

/// A state on the disk. Folders being written or left incomplete by a crash do not count.
struct FoundState {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// Returns the states of run directory `run`, oldest first; none if the directory does not exist. Throws
/// FileError for what cannot be read.
std::vector<FoundState> find_states(const std::filesystem::path& run);

/// Writes the state of header.step atomically. Then keeps the newest `keep` (at least 1) states up to this
/// step and removes the older ones. Tensors are borrowed, or streamed by their `fill`. Returns why the first
/// of those stays that cannot be removed, or "". Throws ResourceError if the disk is full and then leaves all
/// older states.
std::string write_state(const std::filesystem::path& run, const StateHeader& header,
                        std::span<const TensorToWrite> tensors, int keep);

/// A state whose tensors several processes write.
class SharedState {
 public:
  /// Begins the state of header.step in run directory `run`. Of `tensors`, names and shapes are read.
  SharedState(const std::filesystem::path& run, const StateHeader& header,
              std::span<const TensorToWrite> tensors);
  ~SharedState();
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  /// Returns the file of the tensors, to write_tensor() at offset(index).
  const std::filesystem::path& file() const;
  std::uint64_t offset(std::size_t tensor) const;
  /// Reads the file, after all tensors were written, for its checksum. `sees` is called with all pieces of
  /// each tensor.
  void read_back(const std::function<void(std::size_t tensor, std::span<const std::byte>)>& sees);
  /// Does the rest of write_state() after that, and returns the same.
  std::string commit(int keep);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Brings back the states that killed processes were replacing (core/disk/atomic.h). Only the holder of the
/// run's lock may call this. Throws FileError if the directory of states is a link.
void finish_replaced_states(const std::filesystem::path& run);

/// Removes what killed processes left among the states of `run`. Returns why the first of it stays that
/// cannot be removed, or "".
std::string remove_abandoned_states(const std::filesystem::path& run);

/// Throws FileError if a state after `step` holds other files than a state, or if a name that an unfinished
/// one will have is somebody else's.
void check_states_after(const std::filesystem::path& run, std::int64_t step);

/// Removes all states but the newest `keep` (at least 1), and what killed processes left: a process that is
/// killed leaves more. Returns why the first of them stays that cannot be removed, or "".
std::string keep_newest_states(const std::filesystem::path& run, int keep);

/// Removes the states after `step`, which a run resumed from `step` invalidates. Throws FileError if one
/// stays.
void remove_states_after(const std::filesystem::path& run, std::int64_t step);

/// Reads a state. Opening compares all checksums.
class StateReader {
 public:
  /// Opens a folder that find_states returned. Throws FileError if a file is missing, truncated or altered.
  /// The message names the file and the newest intact state before it.
  explicit StateReader(const std::filesystem::path& state);

  const StateHeader& header() const { return header_; }
  /// Returns the tensors, for reading into the caller's memory.
  const WeightFiles& tensors() const { return *tensors_; }

 private:
  StateHeader header_;
  std::optional<WeightFiles> tensors_;
};

/// The tensor file of a state, and the prefix of the names of its weights.
inline constexpr const char* kStateTensors = "state.safetensors";
inline constexpr std::string_view kMasterPrefix = "master.";
/// The end of the names of the scales of an optimizer's state in blocks, "first_moment.NAME.scales": [blocks]
/// F32. "first_moment.NAME" then holds the codes, in F8_E4M3 or F16, or as bytes (U8) of dynamic8.
inline constexpr std::string_view kStateScales = ".scales";

/// Returns the metadata entry kAmaxKey for a model with the weights of the file `state`: the largest
/// magnitude of each history "amax.TENSOR:ELEMENT" except those of gradients, or "" without any.
std::string amax_of_state(const SafetensorsReader& state);

}  // namespace mantissa::io
