#include "mantissa/app/api/doctor.h"

#include "mantissa/app/api/internal.h"
#include "mantissa/setup/forecast/doctor.h"

namespace mantissa::api {

Doctor doctor(const Hardware& hardware, const Ranks& ranks) {
  const auto device = device_for(hardware);
  forecast::Checkup machine;
  if (ranks.leads())
    machine = forecast::check_machine(*device);  // the others wait, so it has its cores alone
  if (ranks.size() > 1) machine.network = forecast::check_network(*device, ranks.communicator());
  if (!ranks.leads()) return {};
  return {forecast::to_text(machine), forecast::to_json(machine)};
}

}  // namespace mantissa::api
