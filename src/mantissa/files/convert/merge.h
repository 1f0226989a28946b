// Adds an adapter into the weights of its base.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/files/convert/convert.h"

namespace mantissa::convert {

struct MergeRequest {
  std::filesystem::path model, adapter, out;
  /// The format of the blocks that held the base, whose values the adapter is added to; null inside: the
  /// weights of `model`. Null: what the adapter was trained on.
  std::optional<std::optional<QuantFormat>> base = {};
  Change change;  // without a format the weights keep theirs
  bool overwrite = false;
};

struct Merge {
  std::filesystem::path model, adapter, out;
  Result result;
  MergeLoss loss;  // of all adapted weights
  std::size_t layers = 0;
  std::vector<std::string> notes, warnings;
};

/// Writes the model directory `out` atomically: the base's files, with W + s·B·A (for DoRA times m / its
/// norms) computed in f64 and rounded once. For a base in blocks, W has their values in all linear layers.
/// Returns null if `stop` was requested. Throws FileError, ConfigError or ShapeError for inputs that do not
/// fit, and if `out` exists already.
std::optional<Merge> merge(const MergeRequest& request, const kernels::Context& ctx,
                           const std::stop_token& stop = {});

/// Returns the report for people, without a final newline, and as JSON (docs/cli/merge.md).
std::string to_text(const Merge& merge);
std::string to_json(const Merge& merge);

}  // namespace mantissa::convert
