// Includes toml++ with the same settings everywhere.
#pragma once

// toml++ 3.3 asserts on some malformed texts ("[\]") that its parser then rejects with a proper error. A
// malformed config must give that error in debug builds too.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>
