#include "mantissa/setup/forecast/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/read.h"

namespace mantissa::forecast {
namespace {

constexpr double kTera = 1e12;
constexpr double kGiga = 1e9;

Target make(const char* name, const char* description, std::vector<FormatRate> rates, double gigabytes,
            double gigabytes_per_second) {
  Target t;
  t.name = name;
  t.description = description;
  for (FormatRate& r : rates) r.flops_per_second *= kTera;
  t.rates = std::move(rates);
  t.memory_bytes = gigabytes * kGiga;
  t.bytes_per_second = gigabytes_per_second * kGiga;
  return t;
}

/// Dense rates in 10^12 flop/s. A rate that a data sheet states for sparse matrices is halved. f64 and f32
/// are those of the vector units, unless tensor cores support the format.
std::vector<Target> make_targets() {
  return {
      // NVIDIA V100 Tensor Core GPU, data sheet (2020), V100 SXM2: 7.8 / 15.7 / 125 TFLOPS, 900 GB/s.
      make("v100", "NVIDIA V100 SXM2 16 GB", {{"f64", 7.8}, {"f32", 15.7}, {"f16", 125}}, 16, 900),
      make("v100-32gb", "NVIDIA V100 SXM2 32 GB", {{"f64", 7.8}, {"f32", 15.7}, {"f16", 125}}, 32, 900),
      // NVIDIA A100 Tensor Core GPU, data sheet (2021), A100 SXM: f64 tensor 19.5, f32 19.5, tf32 156, bf16
      // and f16 312 TFLOPS; 2039 GB/s with 80 GB, 1555 GB/s with 40 GB.
      make("a100", "NVIDIA A100 SXM 80 GB",
           {{"f64", 19.5}, {"f32", 19.5}, {"tf32", 156}, {"bf16", 312}, {"f16", 312}}, 80, 2039),
      make("a100-40gb", "NVIDIA A100 SXM 40 GB",
           {{"f64", 19.5}, {"f32", 19.5}, {"tf32", 156}, {"bf16", 312}, {"f16", 312}}, 40, 1555),
      // NVIDIA H100 Tensor Core GPU, data sheet (2023), H100 SXM: f64 tensor 67, f32 67, and with sparsity
      // tf32
      // 989, bf16 and f16 1979, fp8 3958 TFLOPS; 3.35 TB/s.
      make("h100", "NVIDIA H100 SXM 80 GB",
           {{"f64", 67},
            {"f32", 67},
            {"tf32", 494.5},
            {"bf16", 989.5},
            {"f16", 989.5},
            {"e4m3", 1979},
            {"e5m2", 1979},
            {"fp8-hybrid", 1979}},
           80, 3350),
      // Google Cloud, "TPU v5e" system architecture: 197 TFLOPS bf16 per chip, 16 GB HBM2, 819 GB/s. It
      // multiplies in bf16; an f32 product is six bf16 products (JAX's precision "highest").
      make("tpu-v5e", "Google Cloud TPU v5e, one chip", {{"bf16", 197}}, 16, 819),
  };
}

/// A substitute for products in a format that the machine lacks: a format that represents the factors or
/// their parts, and the number of products in it. The first available substitute is used.
struct Way {
  std::string_view format, made_of;
  int products = 1;
};
constexpr std::array kWays = {
    Way{"f32", "bf16", 6},     Way{"tf32", "f32"},       Way{"tf32", "bf16", 6},   Way{"bf16", "tf32"},
    Way{"bf16", "f32"},        Way{"f16", "tf32"},       Way{"f16", "f32"},        Way{"f16", "bf16", 6},
    Way{"bf16x1", "bf16"},     Way{"bf16x1", "f32"},     Way{"bf16x3", "bf16", 3}, Way{"bf16x3", "f32", 3},
    Way{"bf16x6", "bf16", 6},  Way{"bf16x6", "f32", 6},  Way{"e4m3", "bf16"},      Way{"e4m3", "f16"},
    Way{"e4m3", "f32"},        Way{"e5m2", "bf16"},      Way{"e5m2", "f16"},       Way{"e5m2", "f32"},
    Way{"fp8-hybrid", "bf16"}, Way{"fp8-hybrid", "f16"}, Way{"fp8-hybrid", "f32"}, Way{"mxfp8", "bf16"},
    Way{"mxfp8", "f16"},       Way{"mxfp8", "f32"},      Way{"mxfp4", "bf16"},     Way{"mxfp4", "f16"},
    Way{"mxfp4", "f32"},       Way{"nvfp4", "bf16"},     Way{"nvfp4", "f16"},      Way{"nvfp4", "f32"},
};

double rate_of(const Target& target, std::string_view format) {
  const auto row =
      std::ranges::find_if(target.rates, [&](const FormatRate& r) { return r.format == format; });
  return row == target.rates.end() ? 0 : row->flops_per_second;
}

}  // namespace

const std::vector<std::string>& target_formats() {
  static const std::vector<std::string> names = {"f64",  "f32",        "tf32",  "bf16",  "f16",  "e5m2",
                                                 "e4m3", "fp8-hybrid", "mxfp8", "mxfp4", "nvfp4"};
  return names;
}

TargetFormat format_on(const Target& target, std::string_view format) {
  TargetFormat out;
  out.format = format;
  if (format == "fp8-hybrid-f16") format = "fp8-hybrid";  // the same products
  if (format == "mxfp8-e5m2") format = "mxfp8";           // the same units
  if (format.starts_with("mxfp6-")) format = "mxfp8";     // units for both have this rate at least
  out.flops_per_second = rate_of(target, format);
  out.native = out.flops_per_second > 0;
  if (out.native) {
    out.computed_in = format;
    return out;
  }
  for (const Way& way : kWays) {
    const double rate = rate_of(target, way.made_of);
    if (way.format != format || rate == 0) continue;
    out.flops_per_second = rate / way.products;
    out.computed_in = way.products == 1 ? std::string(way.made_of)
                                        : fmt::format("{} {} products", way.products, way.made_of);
    // Products of bf16 parts are native on bf16 units.
    out.native = format.starts_with("bf16x") && way.made_of == "bf16";
    return out;
  }
  return out;
}

const std::vector<Target>& known_targets() {
  static const std::vector<Target> targets = make_targets();
  return targets;
}

Target find_target(const std::string& text) {
  std::vector<std::string> names;
  for (const Target& t : known_targets()) {
    if (t.name == lowered(text)) return t;
    names.push_back(t.name);
  }
  if (text.ends_with(".toml")) return parse_target(config::read_config_file(text), text);
  throw ConfigError("--target {}: unknown machine{} (known: {}; or a FILE.toml with its rates)",
                    in_quotes(text), did_you_mean(text, names), list_of(names));
}

}  // namespace mantissa::forecast
