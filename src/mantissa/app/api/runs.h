// The runs in a folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::api {

/// A list of runs as a table and as JSON (docs/cli/runs.md).
struct RunList {
  std::string text, json;
  std::vector<std::string> warnings;  // of runs and folders that cannot be read
};
/// Lists the run directories in `folder`, itself included, at any depth: state, steps, losses, policy. Reads
/// a few files of each, and changes nothing. Throws FileError if `folder` cannot be read.
RunList list_runs(const std::filesystem::path& folder);

}  // namespace mantissa::api
