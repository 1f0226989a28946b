// The state of a run from which it goes on with the same bits: state/step-00000100/ holds state.json (where
// the run stands, and a checksum of every file) and state.safetensors (masters, moments, compensations).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/io/checkpoint.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/precision/loss_scaler.h"

namespace mantissa::io {

/// Where a run stands after `step`.
struct StateHeader {
  std::int64_t step = 0;           // attempted updates
  std::int64_t applied = 0;        // updates applied: what the learning rate and the bias correction count
  std::int64_t skipped = 0;        // updates skipped for an overflow
  std::int64_t tokens = 0;         // since the start
  std::int64_t data_position = 0;  // sequences taken
  double loss = 0;                 // of `step`; nan where it was not finite
  std::uint64_t seed = 0;
  std::map<std::string, std::uint64_t> rng;  // counters of generators that are not keyed by the step, by name
  std::optional<precision::ScalerState> scaler;  // where the policy has a loss scale
  std::string config_toml;                       // resolved
  std::string model_config;                      // config.json
  std::string policy;                            // its line
  std::vector<std::string> changes;              // what --resume changed, one entry each time, oldest first
  friend bool operator==(const StateHeader&, const StateHeader&) = default;
};

/// A state on the disk. A folder that is being written, or was left so by a crash, is none.
struct FoundState {
  std::int64_t step = 0;
  std::filesystem::path path;
};

/// The states of run directory `run`, oldest first. None where there is no such directory.
std::vector<FoundState> find_states(const std::filesystem::path& run);

/// Writes the state of header.step, whole or not at all, and then removes all but the newest `keep` (at least
/// 1) of the steps up to this one. Tensors are borrowed, or streamed by their `fill`. Throws ResourceError
/// where the disk is full; all older states are then still there.
void write_state(const std::filesystem::path& run, const StateHeader& header,
                 std::span<const TensorToWrite> tensors, int keep);

/// Removes the states after `step`: what a run that is resumed from there has unmade.
void remove_states_after(const std::filesystem::path& run, std::int64_t step);

/// A state read back. All checksums are compared when it is opened.
class StateReader {
 public:
  /// Opens a folder that find_states found. Throws FileError where a file is missing, cut short or altered;
  /// the message names the file and the newest state before it that is whole.
  explicit StateReader(const std::filesystem::path& state);

  const StateHeader& header() const { return header_; }
  /// The tensors, to be read into the caller's memory.
  const WeightFiles& tensors() const { return *tensors_; }

 private:
  StateHeader header_;
  std::optional<WeightFiles> tensors_;
};

/// The file of a state that holds its tensors, and what the names of the weights among them begin with.
inline constexpr const char* kStateTensors = "state.safetensors";
inline constexpr std::string_view kMasterPrefix = "master.";

/// The entry kAmaxKey of a model made from the file `state`, whose histories are tensors
/// "amax.TENSOR:ELEMENT", without those of gradients; empty where it has none.
std::string amax_of_state(const SafetensorsReader& state);

}  // namespace mantissa::io
