// The memory of training by purpose.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#include "mantissa/setup/forecast/forecast.h"

namespace mantissa::explain {

/// Returns bytes by purpose, in the order of display.
inline std::array<std::pair<std::string_view, std::size_t>, 15> purposes(const forecast::MemoryForecast& m) {
  return {{{"masters", m.masters},
           {"frozen", m.frozen},
           {"reference", m.reference},
           {"moments", m.moments},
           {"compensation", m.compensation},
           {"copies", m.copies},
           {"gradients", m.gradients},
           {"shard_sums", m.shard_sums},
           {"activations", m.activations},
           {"work", m.work},
           {"carried", m.carried},
           {"tables", m.tables},
           {"observer", m.observer},
           {"data", m.data},
           {"process", m.process}}};
}

}  // namespace mantissa::explain
