// Properties of this machine.
#pragma once

#include <string>

#include "mantissa/app/api/hardware.h"

namespace mantissa::api {

/// This machine's cores, instruction sets and memory, the cost of each format, and the recommended preset, as
/// text and as JSON (docs/cli/doctor.md).
struct Doctor {
  std::string text, json;
};
/// Measures the machine. Takes a few seconds.
Doctor doctor(const Hardware& hardware = {});

}  // namespace mantissa::api
