// toml++, included in one way everywhere.
#pragma once

// toml++ 3.3 asserts on some malformed texts ("[\]") that its parser goes on to refuse with a proper error; a
// wrong config must be that error in debug builds too.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>
