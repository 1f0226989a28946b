#include "mantissa/app/api/inspect.h"

#include "mantissa/app/api/internal.h"
#include "mantissa/files/convert/inspect.h"

namespace mantissa::api {

Inspection inspect(const std::filesystem::path& path, const Hardware& hardware) {
  const convert::Inspection found = convert::inspect(path, device_for(hardware)->host());
  return {convert::to_text(found), convert::to_json(found)};
}

}  // namespace mantissa::api
