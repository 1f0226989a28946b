#include "mantissa/api/doctor.h"

#include "mantissa/api/internal.h"
#include "mantissa/cost/doctor.h"

namespace mantissa::api {

Doctor doctor(const Hardware& hardware) {
  const cost::Checkup machine = cost::check_machine(*device_for(hardware));
  return {cost::to_text(machine), cost::to_json(machine)};
}

}  // namespace mantissa::api
