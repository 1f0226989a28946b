#include "mantissa/api/merge.h"

#include <fmt/format.h>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/convert/merge.h"
#include "mantissa/weights/base_hash.h"

namespace mantissa::api {

Merge merge(const MergeOptions& o, std::stop_token stop) {
  convert::MergeRequest request;
  request.model = o.model;
  request.adapter = o.adapter;
  request.out = o.out.has_filename() || !o.out.has_parent_path() ? o.out : o.out.parent_path();
  request.overwrite = o.overwrite;
  if (parse_block_format(o.dtype)) {
    throw ConfigError(
        fmt::format("--dtype {}: merge writes plain formats; merge first, then convert the result", o.dtype));
  }
  if (!o.base.empty()) request.base = base_named(o.base);
  if (!o.dtype.empty()) request.change.format = format_named(o.dtype);
  const auto device = device_for(o.hardware);
  const std::optional<std::string> changed = weights::changed_base(weights::find_model(o.model), o.adapter);
  std::optional<convert::Merge> done = convert::merge(request, device->host(), stop);
  Merge m;
  m.interrupted = !done;
  if (!done) return m;
  if (changed) done->warnings.push_back(*changed);
  m.layers = done->layers;
  m.lost = done->loss.share();
  m.vanished = done->loss.vanished_share();
  m.notes = done->notes;
  m.warnings = done->warnings;
  m.text = convert::to_text(*done);
  m.json = convert::to_json(*done);
  return m;
}

}  // namespace mantissa::api
