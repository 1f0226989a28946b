// A checkpoint rewritten in another format: one safetensors file, a model directory, or the masters of a
// state as a model directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/convert/rewrite.h"
#include "mantissa/convert/source.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

struct Request {
  Source in;
  std::filesystem::path out;  // a file where `in` is one, else a directory
  Change change;
  bool overwrite = false;  // a file or a model that stands at `out` is replaced
};

struct Result {
  std::vector<RewrittenTensor> tensors;       // file by file, in their order there
  std::vector<std::string> copied;            // other files that were taken along
  std::vector<std::string> left_out;          // and those that were not: weights in other files, folders
  std::vector<std::string> notes;             // what a user should be told once
  std::vector<std::string> warnings;          // the same of values that became inf or nan
  std::uint64_t bytes_in = 0, bytes_out = 0;  // of the tensors
};

/// Writes `out` whole or not at all; returns nothing where `stop` was used. The weights pass through memory
/// piece by piece. A directory keeps its files and their names; config.json names the new dtype. Metadata
/// are kept, and say what was done: "mantissa.rounded_to", the format that the weights were last rounded to,
/// and "mantissa.history". Throws FileError where `out` holds something already or is the input. 8-bit
/// weights with scales in tensors of their own are multiplied with these on their way to a wider format.
std::optional<Result> convert(const Request& request, const kernels::Context& ctx,
                              const std::stop_token& stop = {});

}  // namespace mantissa::convert
