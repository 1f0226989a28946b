// What this machine can do.
#pragma once

#include <string>

#include "mantissa/api/hardware.h"

namespace mantissa::api {

/// Cores, instruction sets, memory, formats with their measured cost, and the preset this machine should use:
/// text and JSON.
struct Doctor {
  std::string text, json;
};
Doctor doctor(const Hardware& hardware = {});

}  // namespace mantissa::api
