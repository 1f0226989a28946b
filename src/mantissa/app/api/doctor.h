// Properties of this machine.
#pragma once

#include <string>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/ranks.h"

namespace mantissa::api {

/// This machine's cores, instruction sets and memory, the cost of each format, and the recommended preset, as
/// text and as JSON (docs/cli/doctor.md).
struct Doctor {
  std::string text, json;
};
/// Measures the machine. Takes a few seconds. If several ranks call it, the first one measures its machine,
/// and all of them the network between them; the others return nothing.
Doctor doctor(const Hardware& hardware = {}, const Ranks& ranks = Ranks());

}  // namespace mantissa::api
