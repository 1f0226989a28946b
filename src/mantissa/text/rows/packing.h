// Packing: several documents in one row, each of which attends only to itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mantissa::text {

/// Rows that are open at the same time in pack(). More rows fill the gaps better and move documents further
/// from their neighbours.
inline constexpr std::int64_t kOpenRows = 64;

/// Divides documents of the given `lengths`, in ids, into rows of at most `capacity` ids, usually
/// sequence_length + 1. Returns the indices of each row's documents, ascending. First fit: a document joins
/// the first of the last `open_rows` rows with enough room; without one, it begins a row. The result depends
/// only on the arguments. Throws ConfigError for a length below 2, because a document of one id predicts
/// nothing, or above `capacity`.
std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths, std::int64_t capacity,
                                            std::int64_t open_rows = kOpenRows);

}  // namespace mantissa::text
