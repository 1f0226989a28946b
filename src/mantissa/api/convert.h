// A checkpoint in another number format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/api/hardware.h"
#include "mantissa/api/precision.h"

namespace mantissa::api {

struct ConvertOptions {
  std::filesystem::path in, out;
  std::string dtype;                 // "bf16", "torch.float16", …; empty: every tensor stays as it is
  std::string format = "hf";         // layout of what is written; the only one of this version
  std::string rounding = "nearest";  // stochastic, toward-zero
  bool saturate = false;             // values beyond the range become the largest of the format
  bool allow_overflow = false;       // no warning where they become infinities (e4m3: nans) instead
  bool overwrite = false;            // a file or a model that stands at `out` is replaced
  std::uint64_t seed = 1;            // of stochastic rounding
  std::vector<std::string> data;  // files, or {"kk"}: the model's loss before and after, and the divergence
  std::string data_format = "auto";
  std::int64_t sequence_length = 256;
  Precision precision;  // in which both models are run over the data
  Hardware hardware;
};

/// What a conversion did to one tensor, or to all.
struct ConvertedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string from, to;  // "F32", "BF16", as safetensors calls them
  std::uint64_t count = 0;
  double max_error = 0;  // largest |after − before|
  double rms_error = 0;
  double relative_error = 0;      // rms_error as a share of the values' root mean square
  double max_relative_error = 0;  // largest |after − before| / |before|
  std::uint64_t overflows = 0;    // beyond the range of the new format
  std::uint64_t vanished = 0;     // not zero before, zero after
  std::uint64_t nonfinite = 0;    // inf or nan before
};

/// Two models over the same tokens.
struct ConversionEffect {
  std::int64_t tokens = 0;
  double loss = 0, converted_loss = 0;  // nats per token
  double kl = 0;      // mean over positions of the divergence of the converted model's distribution from the
                      // original's, Σ p·(log p − log q), nats
  double max_kl = 0;  // at one position
};

struct Conversion {
  std::vector<ConvertedTensor> tensors;  // in their order in the files
  ConvertedTensor total;
  std::optional<ConversionEffect> effect;    // where there are data
  std::vector<std::string> notes, warnings;  // a warning: which values became inf or nan
  bool interrupted = false;  // the stop token was used: nothing was written, or `out` is not compared
  std::string text;          // for people
  std::string json;          // for programs (docs/cli.md, "convert")
};

/// Rewrites a safetensors file, a model directory, or the model or newest state of a run. `out` appears whole
/// or not at all. Throws ConfigError for options that name nothing, FileError where `out` may not be written.
Conversion convert(const ConvertOptions& options, std::stop_token stop = {});

}  // namespace mantissa::api
