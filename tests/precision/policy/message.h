// Returns the message of the ConfigError that a function throws.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "mantissa/core/base/error.h"

namespace mantissa::precision {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ConfigError& e) {
    return e.what();
  }
  ADD_FAILURE() << "expected a ConfigError, got none";
  return {};
}

}  // namespace mantissa::precision
