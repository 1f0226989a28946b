// The experts that the routers of a mixture of experts choose while a program runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mantissa/engine/runtime/executor.h"

namespace mantissa::runtime {

/// The experts of each token, in ascending order of their numbers.
struct Choices {
  std::int64_t chosen = 0;            // experts of a token
  std::vector<std::int32_t> experts;  // [tokens, chosen], in the order of the runs and their tokens
};

/// Records the choices of an executor's forward phases as long as it exists, in place of another
/// Executor::after_step. Changes no value.
class RouterRecord {
 public:
  explicit RouterRecord(Executor& executor);
  ~RouterRecord() { executor_.after_step = {}; }
  RouterRecord(const RouterRecord&) = delete;
  RouterRecord& operator=(const RouterRecord&) = delete;

  /// Returns the choices of each router, by its scope.
  const std::map<std::string, Choices>& choices() const { return choices_; }

 private:
  Executor& executor_;
  std::map<std::string, Choices> choices_;
};

}  // namespace mantissa::runtime
