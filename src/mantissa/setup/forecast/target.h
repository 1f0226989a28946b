// Other machines: their native formats and their peak rates.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::forecast {

/// The dense rate of multiply-adds in a format.
struct FormatRate {
  std::string format;
  double flops_per_second = 0;
};

/// A machine as stated by its maker. A run reaches `product_share` of the rates in products,
/// `attention_share` in attention, and `stream_share` of the bandwidth. Each step of a plan takes at least
/// `seconds_per_kernel`.
struct Target {
  std::string name;         // "a100"
  std::string description;  // "NVIDIA A100 SXM 80 GB"
  std::vector<FormatRate> rates;
  double bytes_per_second = 0;
  double memory_bytes = 0;
  double memory_share = 0.92;  // available to a run; contexts, libraries and fragments use the rest
  double product_share = 0.5;
  double attention_share = 0.3;
  double stream_share = 0.8;
  double seconds_per_kernel = 5e-6;
};

/// The way in which a target computes products in a format.
struct TargetFormat {
  std::string format;
  bool native = false;
  std::string computed_in;  // the format itself, "3 bf16 products", or a wider format; "" if there is none
  double flops_per_second = 0;  // of products in the format; 0 if there are none
};
TargetFormat format_on(const Target& target, std::string_view format);

/// Returns every format of targets, widest first.
const std::vector<std::string>& target_formats();

/// Returns the built-in machines.
const std::vector<Target>& known_targets();

/// Returns the built-in machine called `text`, or the target of a file whose name ends in ".toml". Throws
/// ConfigError for an unknown name or invalid contents, and FileError if the file cannot be read.
Target find_target(const std::string& text);

/// Parses a target from TOML (docs/cli/explain.md). `file` appears in messages. Throws ConfigError.
Target parse_target(std::string_view text, const std::filesystem::path& file);

}  // namespace mantissa::forecast
