// States of an optimizer in blocks of codes (core/numeric/state_format.h), read from the state of a run that
// may have kept them in another format.
#pragma once

#include <string>

#include "mantissa/files/io/state.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// True if a state holds the tensor `name` in blocks.
bool holds_blocks(const io::StateReader& state, const std::string& name);

/// Reads the state `to`, of a shape that was compared, if the saved one or `to` is in blocks. `scales` is the
/// memory of its scales, or null if `to` is not in blocks. Codes of the same format are copied; otherwise the
/// values are encoded, or rounded to nearest. Throws DtypeError if what was saved is not a state.
void read_blocked_state(const train::Trainer& trainer, const io::StateReader& state,
                        const train::Trainer::NamedMemory& to, const train::Trainer::NamedMemory* scales);

}  // namespace mantissa::run
