#include "mantissa/api/diff.h"

#include "mantissa/api/internal.h"
#include "mantissa/lab/diff/diff.h"

namespace mantissa::api {

Diff diff(const DiffOptions& o) {
  const lab::Diff found = lab::diff(o.a, o.b, o.bitwise, *device_for(o.hardware));
  return {found.equal(), lab::verdict(found), lab::to_text(found, o.limit), lab::to_json(found)};
}

}  // namespace mantissa::api
