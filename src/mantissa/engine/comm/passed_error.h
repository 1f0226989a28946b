// An error of one rank, which every rank then throws.
#pragma once

#include <exception>
#include <span>

#include "mantissa/engine/comm/bytes.h"

namespace mantissa::comm {

/// Returns an error that a user can correct as the bytes of a message, empty for null. Throws any other error
/// and RankLost.
Bytes bytes_of_error(const std::exception_ptr& error);
/// Throws the error; returns for no bytes.
void throw_error(std::span<const std::byte> bytes);

}  // namespace mantissa::comm
