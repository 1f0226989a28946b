// The states of a sequence apart from a session: in memory, and as a file that generation continues from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/generate/rollout/states_origin.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::rollout {

struct SequenceStates {
  struct State {
    std::string name;  // "model.layers.0.attn.state"
    Scalar type = Scalar::f32;
    std::vector<std::int64_t> shape;  // of one slot; of positions, only those that are fed
    std::vector<std::byte> bytes;
  };
  std::vector<std::int32_t> ids;  // the sequence
  std::int64_t fed = 0;  // of its tokens, those that the states have taken in: all, or all but the last
  std::vector<State> states;
  std::string where = "the states";  // the file, for messages
  std::string policy = {};           // that they were made under; "": unknown
};

/// What the file keeps in addition to the states, by names of its caller.
using StatesNotes = std::map<std::string, std::string>;

/// Writes a safetensors file: the states, "ids" I32, and the rest as metadata. Replaces a file of that name.
/// Throws FileError or ResourceError.
void write_states(const std::filesystem::path& file, const SequenceStates& states, const StatesOrigin& origin,
                  const StatesNotes& notes);

struct StatesFile {
  SequenceStates states;
  StatesOrigin origin;
  StatesNotes notes;
};
/// Returns the files of a model that a file of states must not replace: those of its directory, or its
/// weights if only they are a model.
std::vector<std::filesystem::path> states_inputs(const weights::ModelSource& source);

/// Throws FileError unless a file of states can be written to `file`, which may exist if it is one, or if
/// `overwrite`; null: the command has no such option. It must not be one of `inputs`, or in one of them.
void check_states_place(const std::filesystem::path& file, std::optional<bool> overwrite,
                        std::span<const std::filesystem::path> inputs);

/// Throws FileError for any other file.
StatesFile read_states(const std::filesystem::path& file);

/// Throws FileError if the file comes from another model than `here`, or has ids outside its `vocabulary`.
void check_model(const StatesFile& file, const StatesOrigin& here, std::int64_t vocabulary);

/// Throws DtypeError or ShapeError with the state that `program` keeps in another format or shape, and
/// ConfigError if its policy is another one.
void check_states(const SequenceStates& states, const plan::Program& program);

}  // namespace mantissa::rollout
