// Machines that a run may be meant for: what they have natively, and what they do at most.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::cost {

/// The dense rate at which a machine multiplies and adds in a format.
struct FormatRate {
  std::string format;
  double flops_per_second = 0;
};

/// A machine as its maker states it. Of the rates a run reaches `product_share` in products,
/// `attention_share` in attention, and `stream_share` of the bandwidth; each step of a plan costs
/// `seconds_per_kernel` at least.
struct Target {
  std::string name;         // "a100"
  std::string description;  // "NVIDIA A100 SXM 80 GB"
  std::vector<FormatRate> rates;
  double bytes_per_second = 0;
  double memory_bytes = 0;
  double memory_share = 0.92;  // that a run may fill: contexts, libraries and fragments take the rest
  double product_share = 0.5;
  double attention_share = 0.3;
  double stream_share = 0.8;
  double seconds_per_kernel = 5e-6;
};

/// How a target computes products in a format.
struct TargetFormat {
  std::string format;
  bool native = false;
  std::string computed_in;  // itself, "3 bf16 products", or a wider format that it has; "" where it has none
  double flops_per_second = 0;  // of products in the format; 0 where it has none
};
TargetFormat format_on(const Target& target, std::string_view format);

/// Every format that tables of targets speak of, widest first.
const std::vector<std::string>& target_formats();

/// The machines that are known by name.
const std::vector<Target>& known_targets();

/// The known machine called `text`, or what the file says where it ends in ".toml". Throws ConfigError for an
/// unknown name and for what is wrong in the file, FileError where it cannot be read.
Target find_target(const std::string& text);

/// A target from TOML (docs/cli.md, "Targets"); `file` stands in messages. Throws ConfigError.
Target parse_target(std::string_view text, const std::filesystem::path& file);

}  // namespace mantissa::cost
