#include "mantissa/app/api/doctor.h"

#include "mantissa/app/api/internal.h"
#include "mantissa/setup/forecast/doctor.h"

namespace mantissa::api {

Doctor doctor(const Hardware& hardware) {
  const forecast::Checkup machine = forecast::check_machine(*device_for(hardware));
  return {forecast::to_text(machine), forecast::to_json(machine)};
}

}  // namespace mantissa::api
