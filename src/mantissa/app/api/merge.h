// An adapter, added into the weights of its base.
#pragma once

#include <cstddef>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/hardware.h"

namespace mantissa::api {

struct MergeOptions {
  std::filesystem::path model;    // a model directory
  std::filesystem::path adapter;  // a directory of peft, or a run with an adapter
  std::filesystem::path out;
  std::string dtype;       // a plain number format; empty: weights keep theirs
  std::string base;        // as Model::base: what the adapter is added to
  bool overwrite = false;  // replace an existing model at `out`
  Hardware hardware;
};

struct Merge {
  std::size_t layers = 0;  // adapted weights
  double lost = 0;         // norm of the rounding errors as a share of the norm of the adapter's change
  double vanished = 0;     // share of the changed elements that round to the number of the base
  std::vector<std::string> notes, warnings;
  bool interrupted = false;  // by a stop: nothing was written
  std::string text;          // for people
  std::string json;          // for programs (docs/cli/merge.md)
};

/// Writes a model directory with the adapter added into the weights, in f64 and rounded once. It appears
/// complete or not at all. Throws ConfigError, FileError or ShapeError for inputs that do not fit.
Merge merge(const MergeOptions& options, std::stop_token stop = {});

}  // namespace mantissa::api
