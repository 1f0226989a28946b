// The states of a recurrent model that the rows of a step leave to those of the next (data.carry_state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/session.h"

namespace mantissa::train {

/// Keeps the states between steps, apart from a session, whose memory other programs use too. Empty if no
/// rows continue others.
class CarriedStates {
 public:
  struct State {
    std::string name;  // "model.layers.0.attn.state"
    Scalar type = Scalar::f32;
    std::vector<std::int64_t> shape;  // [rows of a batch, elements]
    std::vector<std::byte> bytes;
  };

  /// Zeros for each state of `program`.
  explicit CarriedStates(const plan::Program& program);

  std::vector<State>& all() { return states_; }
  /// Rounds or widens the states to the formats of another program of the run.
  void assign_formats(const plan::Program& program);
  /// Copies the states into the inputs of a step of `session`.
  void give(runtime::Session& session) const;
  /// Replaces the states by those after the last step of `session`.
  void take(runtime::Session& session);

 private:
  std::vector<State> states_;
};

}  // namespace mantissa::train
