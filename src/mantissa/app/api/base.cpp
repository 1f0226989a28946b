#include "mantissa/app/api/base.h"

#include "mantissa/app/api/internal.h"
#include "mantissa/setup/programs/narrow_layers.h"

namespace mantissa::api {

std::vector<std::string> base_notes(const Model& model) {
  return programs::narrow_layers_notes(source_of(model).config);
}

}  // namespace mantissa::api
