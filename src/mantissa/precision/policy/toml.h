// Includes toml++ with the same settings everywhere.
#pragma once

// toml++ 3.3 asserts on some malformed texts ("[\]") that its parser then rejects with a proper error. A
// malformed config must give that error in debug builds too.
#define TOML_ASSERT(expr) static_assert(true)

// toml.cpp compiles the parser. That of the distribution's library reads numbers through a stream, which
// takes exhausted memory for a malformed number.
#define TOML_HEADER_ONLY 0
#define TOML_SHARED_LIB 0
#define TOML_FLOAT_CHARCONV 1
#include <toml++/toml.h>
