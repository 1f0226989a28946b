#include "mantissa/app/api/diff.h"

#include "mantissa/app/api/internal.h"
#include "mantissa/lab/diff/diff.h"

namespace mantissa::api {

Diff diff(const DiffOptions& o) {
  const lab::Diff found = lab::diff(o.a, o.b, o.bitwise, *device_for(o.hardware));
  return {.equal = found.equal(),
          .beyond_rounding = found.rounding && found.rounding->fault(),
          .verdict = lab::verdict(found),
          .more = lab::trace_verdicts(found),
          .text = lab::to_text(found, o.limit),
          .json = lab::to_json(found)};
}

}  // namespace mantissa::api
