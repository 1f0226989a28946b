// Compiles toml++'s parser with the settings of toml.h.
#define TOML_IMPLEMENTATION
#include "mantissa/precision/policy/toml.h"
