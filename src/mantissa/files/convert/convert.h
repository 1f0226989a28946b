// Rewrites a checkpoint in another format: one safetensors file, a model directory, the masters of a state as
// a model directory, a checkpoint of PyTorch or a GGUF file, in either direction.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/files/convert/rewrite.h"
#include "mantissa/files/gguf/tensor_type.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

enum class Layout {
  hugging_face,  // a safetensors file or a directory, as `in`
  pth,           // a checkpoint of PyTorch, or a directory with one
  gguf           // one file
};

struct Request {
  io::ModelPath in;
  std::filesystem::path out;  // a file or a directory: writes_directory()
  Change change;
  bool overwrite = false;  // replaces an existing file or model at `out`
  Layout layout = Layout::hugging_face;
  /// The layout is gguf, and matrices become Q4_0, Q8_0 or MXFP4 instead of change.format.
  std::optional<gguf::TensorType> quantized = {};
  /// Adapters to add, by the names of weights in `in`, which is a model.
  std::map<std::string, std::shared_ptr<const AdaptedWeight>> adapters = {};

  /// `in` is a file with the names of RWKV-LM: look_at_names().
  bool rwkv = false;

  /// Returns true if `out` is a directory. A checkpoint of PyTorch is a file if `out` ends in .pth, .pt or
  /// .bin, and one of RWKV-LM becomes a directory unless `out` ends like a file of weights.
  bool writes_directory() const;
  Container container() const { return layout == Layout::pth ? Container::torch : Container::safetensors; }
  /// Returns the name of the weight file in a directory.
  const char* weights_name() const {
    return layout == Layout::pth ? "pytorch_model.bin" : "model.safetensors";
  }
};

/// Sets `request.rwkv`, by the names of the tensors in `request.in`.
void look_at_names(Request& request);

/// True for the extensions of a checkpoint of PyTorch.
bool is_torch_name(const std::filesystem::path& path);

/// True for names that end in .gguf, in any case of letters.
bool is_gguf_name(const std::filesystem::path& path);
/// True for the usual names of files of weights: a directory would be taken for one.
bool is_weights_name(const std::filesystem::path& path);

struct Result {
  std::vector<RewrittenTensor> tensors;       // file by file, in their order there
  std::vector<std::string> copied;            // other files that were copied
  std::vector<std::string> left_out;          // files that were not: weights in other formats, folders
  std::vector<std::string> notes;             // notes for the user
  std::vector<std::string> warnings;          // warnings about values that became inf or nan
  std::uint64_t bytes_in = 0, bytes_out = 0;  // of the tensors
};

/// Throws FileError unless `out` can and may be written: nothing is replaced without `overwrite`, and never a
/// directory with files that this program did not write, or another kind of result.
void check_place(const Request& request);

/// Writes `out` atomically. Returns null if `stop` was requested. Weights pass through memory in pieces. A
/// directory keeps its files and their names; config.json names the new dtype. Metadata entries are kept,
/// with two updates: "mantissa.rounded_to", the format of the weights' last rounding, and "mantissa.history".
/// 8-bit weights whose scales are separate tensors are multiplied by them when they are converted to a wider
/// format. Throws FileError if `out` exists already or is the input.
std::optional<Result> convert(const Request& request, const kernels::Context& ctx,
                              const std::stop_token& stop = {});

}  // namespace mantissa::convert
