// Writes a state. If ranks share the run, all of them write into its file at the same time.
#pragma once

#include <filesystem>
#include <vector>

#include "mantissa/files/io/state.h"
#include "mantissa/train/run/orders.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// Returns a tensor to write with the contents of `memory`, which must outlive it.
io::TensorToWrite tensor_of(const train::Trainer::NamedMemory& memory);
/// Returns the dtype of its tensor in a state: U8 for the codes of dynamic8, which number the values of a
/// table.
io::Dtype dtype_of(const train::Trainer::NamedMemory& memory);

/// Writes a state into run directory `out`. `tensors` begin with those of trainer.state_memory(); the first
/// rank writes the others. A rank writes the masters and moments that it owns, and a share of those that all
/// ranks have. The first one writes for ranks that do not see the file. Every rank throws the error of any.
/// Returns as io::write_state().
std::string write_state(train::Trainer& trainer, Orders& orders, const std::filesystem::path& out,
                        const io::StateHeader& header, const std::vector<io::TensorToWrite>& tensors);

/// The part of a rank that follows.
void write_part(train::Trainer& trainer, comm::Communicator& ranks);

}  // namespace mantissa::run
