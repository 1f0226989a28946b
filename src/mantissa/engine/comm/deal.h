// Work that ranks do apart: rows of an evaluation, runs of a comparison, cures of an audit.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>
#include <vector>

#include "mantissa/engine/comm/bytes.h"
#include "mantissa/engine/comm/communicator.h"

namespace mantissa::comm {

/// Returns the result of an item, or null after a stop: `stop` is that of any rank.
using DealtWork = std::function<std::optional<Bytes>(std::int64_t item, const std::stop_token& stop)>;

/// Returns what `work` returns for items 0, 1, … up to the first that a stop left without a result. Every
/// rank calls it alike, runs items `rank`, `rank` + size, … in order, and receives the results of all. `work`
/// may take any time, but must not use `ranks`. `ranks` may be null: this process alone.
///
/// The Error of the first item that throws one is thrown on every rank; an error of a file or of memory on
/// another rank than the first then begins with its place. Throws ConfigError if ranks differ in `items` or
/// the bytes of `inputs`.
std::vector<Bytes> deal(Communicator* ranks, std::int64_t items,
                        std::initializer_list<std::string_view> inputs, const std::stop_token& stop,
                        const DealtWork& work);

/// Returns the memory of values as text, for `inputs`.
template <class T>
std::string_view memory_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace mantissa::comm
