// The differences between the resolved configs of two runs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::lab {

struct ConfigDifference {
  std::string key;     // "optimizer.lr"
  std::string a, b;    // values as TOML; "" if the key is missing
  std::string exempt;  // the reason why it does not count: "changes no bit", or "paths"
  bool counts() const { return exempt.empty(); }
};

/// Compares TOML texts key by key, in the order of `a`. The policy's line is compared field by field, and
/// `run.name` and `run.out` are ignored. Throws ConfigError, with the name of the file, if a text is not
/// TOML.
std::vector<ConfigDifference> compare_configs(std::string_view a, const std::filesystem::path& file_a,
                                              std::string_view b, const std::filesystem::path& file_b);

}  // namespace mantissa::lab
