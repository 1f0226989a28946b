// Conversion of a checkpoint to another number format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/precision.h"

namespace mantissa::api {

struct ConvertOptions {
  std::filesystem::path in, out;
  // "bf16", "torch.float16", …; empty: tensors keep their formats, and quantized ones of a GGUF file become
  // f32; also "q8_0", "q6_k", "q5_k", "q4_k", "q4_0", "q3_k" or "mxfp4" for the layout gguf
  std::string dtype;
  // layout of the output: "hf", "pth" or "gguf"; empty: by the end of `out`
  std::string format = {};
  std::string rounding = "nearest";  // or stochastic, toward-zero
  bool saturate = false;             // values beyond the range become the largest of the format
  bool allow_overflow = false;       // no warning if they become infinities (e4m3: NaN) instead
  bool overwrite = false;            // replace an existing file or model at `out`
  std::uint64_t seed = 1;            // for stochastic rounding
  std::vector<std::string> data;     // files, or {"kk"}: compare the model's loss before and after
  std::string data_format = "auto";
  std::int64_t sequence_length = 256;
  Precision precision;  // of both models over the data
  Hardware hardware;
};

/// The errors of one tensor, or of all.
struct ConvertedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string from, to;  // "F32", "BF16", as in safetensors
  std::uint64_t count = 0;
  double max_error = 0;  // largest |after − before|
  double rms_error = 0;
  double relative_error = 0;      // rms_error as a share of the values' root mean square
  double max_relative_error = 0;  // largest |after − before| / |before|
  std::uint64_t overflows = 0;    // beyond the range of the new format
  std::uint64_t vanished = 0;     // nonzero before, zero after
  std::uint64_t nonfinite = 0;    // inf or nan before
};

/// Compares two models over the same tokens.
struct ConversionEffect {
  std::int64_t tokens = 0;
  double loss = 0, converted_loss = 0;  // nats per token
  double kl = 0;  // mean over positions of Σ p·(log p − log q), in nats; p: distribution of the original, q:
                  // of the converted model
  double max_kl = 0;  // at one position
};

struct Conversion {
  std::vector<ConvertedTensor> tensors;  // in the order of the files
  ConvertedTensor total;
  std::optional<ConversionEffect> effect;    // if there is data
  std::vector<std::string> notes, warnings;  // warnings: values that became inf or NaN
  bool interrupted = false;  // by a stop: nothing was written, or the models were not compared
  std::string text;          // for people
  std::string json;          // for programs (docs/cli/convert.md)
};

/// Rewrites a safetensors file, a model directory, a GGUF file, or the model or newest state of a run. `out`
/// appears complete or not at all. Throws ConfigError for invalid options, and FileError if `in` cannot be
/// read or `out` must not be written. Throws RunStopped, after writing `out`, if a model of the comparison
/// has a non-finite loss. A stop before `out` is complete leaves nothing; a later one skips the comparison
/// (docs/library.md, "Stopping and resuming").
Conversion convert(const ConvertOptions& options, std::stop_token stop = {});

}  // namespace mantissa::api
