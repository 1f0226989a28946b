#include "mantissa/app/api/merge.h"

#include <fmt/format.h>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/files/convert/convert.h"
#include "mantissa/files/convert/merge.h"
#include "mantissa/setup/weights/base_hash.h"

namespace mantissa::api {
namespace {

/// Refuses an OUT that is the name of a file: merge writes a directory.
void check_directory(const MergeOptions& o, const std::filesystem::path& out) {
  if (!convert::is_weights_name(out)) return;
  const std::filesystem::path directory =
      std::filesystem::path(out).replace_extension("").string() + "-merged";
  const bool file = convert::is_gguf_name(out) || convert::is_torch_name(out);
  throw ConfigError(
      "{}: expected the name of a directory, got one that ends in {}: merge writes a model directory. Fix: "
      "mantissa merge {} {} {}{}",
      out.string(), out.extension().string(), o.model.string(), o.adapter.string(), directory.string(),
      file ? fmt::format(", then mantissa convert {} {}", directory.string(), out.string()) : "");
}

}  // namespace

Merge merge(const MergeOptions& o, std::stop_token stop) {
  convert::MergeRequest request;
  request.model = o.model;
  request.adapter = o.adapter;
  request.out = o.out.has_filename() || !o.out.has_parent_path() ? o.out : o.out.parent_path();
  request.overwrite = o.overwrite;
  check_directory(o, request.out);
  if (parse_block_format(o.dtype)) {
    throw ConfigError("--dtype {}: merge writes plain formats; merge first, then convert the result",
                      o.dtype);
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
