#include "mantissa/app/api/hardware.h"

#include "mantissa/app/api/internal.h"

namespace mantissa::api {

std::shared_ptr<const runtime::Device> device_for(const Hardware& hardware, std::int64_t config_threads,
                                                  int processes) {
  return runtime::open_device({.name = hardware.device,
                               .instructions = hardware.simd,
                               .threads = hardware.threads != 0 ? hardware.threads : config_threads,
                               .processes = processes});
}

}  // namespace mantissa::api
