// What this machine can do.
#pragma once

#include <string>

#include "mantissa/api/hardware.h"

namespace mantissa::api {

/// This machine's cores, instruction sets and memory, what each format costs on it, and the preset that it
/// should use; for people and for programs (docs/cli.md, "doctor").
struct Doctor {
  std::string text, json;
};
/// Measures the machine, which takes a few seconds.
Doctor doctor(const Hardware& hardware = {});

}  // namespace mantissa::api
