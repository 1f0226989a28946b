#include "mantissa/files/convert/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/convert/beside.h"
#include "mantissa/files/convert/gguf_adapter.h"
#include "mantissa/files/convert/gguf_in.h"
#include "mantissa/files/convert/gguf_out.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/convert/joined_source.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/convert/rwkv.h"
#include "mantissa/files/convert/trained_weights.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/expert_tensors.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/io/state.h"
#include "mantissa/files/io/state_weights.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestConfig = std::uint64_t{16} << 20;
constexpr std::string_view kIndexEnd = ".index.json", kSafetensorsIndexEnd = ".safetensors.index.json";
constexpr const char* kHead = "lm_head.weight";

class Converter {
 public:
  Converter(const Request& request, const kernels::Context& ctx, const std::stop_token& stop)
      : request_(request), ctx_(ctx), stop_(stop) {}

  std::optional<Result> run() {
    check_place(request_);
    if (!rewrite()) return std::nullopt;
    note();
    warn();
    return std::move(result_);
  }

 private:
  bool rewrite() {
    if (becomes_gguf_adapter(request_)) return take(write_gguf_adapter(request_, ctx_, stop_));
    if (request_.layout == Layout::gguf) return take(write_gguf(request_, ctx_, stop_));
    if (becomes_states_file(request_)) return take(write_states(request_, ctx_, stop_));
    if (becomes_rwkv_file(request_)) return take(write_rwkv(request_, ctx_, stop_));
    if (request_.rwkv && !request_.writes_directory()) check_rwkv_dtype(request_);
    switch (request_.in.kind) {
      case io::ModelPath::Kind::file:
        if (request_.rwkv && request_.writes_directory()) return take(convert_rwkv(request_, ctx_, stop_));
        return file();
      case io::ModelPath::Kind::model:
      case io::ModelPath::Kind::adapter:  // refused by what calls this (files/convert/refuse_adapter.h)
        return model();
      case io::ModelPath::Kind::state:
        return state();
      case io::ModelPath::Kind::gguf:
        return take(convert_gguf(request_, ctx_, stop_));
    }
    return false;
  }

  bool take(std::optional<Result> done) {
    if (done) result_ = std::move(*done);
    return done.has_value();
  }

  /// Returns the weights to convert. Throws for files without any, which no layout could hold.
  io::WeightFiles weights() const {
    io::WeightFiles files(request_.in.weights);
    if (files.tensors().empty())
      throw FileError("{}: contains no tensors; give a file of weights", request_.in.weights.string());
    return files;
  }

  disk::Target given() const { return disk::given(request_.out, request_.overwrite); }

  /// Rewrites one weight file. Returns false if it was stopped.
  bool rewrite(const io::TensorSource& in, std::span<const OutputTensor> outputs, const disk::Target& out,
               const Metadata& metadata) {
    const auto done =
        rewrite_file(in, outputs, request_.container(), out, metadata, request_.change, ctx_, stop_);
    if (!done) return false;
    for (const OutputTensor& output : outputs) result_.bytes_in += output.tensor->end - output.tensor->begin;
    for (const RewrittenTensor& t : *done) {
      const auto count = static_cast<std::uint64_t>(
          std::max<std::int64_t>(0, io::TensorInfo{t.name, t.to, t.shape, 0, 0}.count()));
      result_.bytes_out += count * io::bytes_of(t.to);
    }
    result_.tensors.insert(result_.tensors.end(), done->begin(), done->end());
    return true;
  }

  bool file() {
    const io::WeightFiles files = weights();
    if (!request_.writes_directory()) return one_file(files, given());
    disk::AtomicDirectory out(given(), disk::kModel);
    if (!one_file(files, out.beside() / request_.weights_name())) return false;
    out.commit();
    return true;
  }

  /// Writes all tensors to the file `out`.
  bool one_file(const io::WeightFiles& files, const disk::Target& out) {
    result_.notes = files.notes();
    const JoinedSource in(files);
    const std::vector<OutputTensor> outputs = outputs_of(files, in);
    Metadata metadata = metadata_after(in.metadata(), outputs, request_.change);
    if (request_.writes_directory() && request_.layout == Layout::hugging_face)
      metadata.emplace("format", "pt");  // required by transformers
    return rewrite(in, outputs, out, metadata);
  }

  /// Marks the tensors of a model that was trained for the blocks of the change.
  void mark_trained(std::vector<OutputTensor>& outputs) const {
    if (trained_.empty()) return;
    for (OutputTensor& output : outputs) output.trained = trained_.contains(output.name);
  }

  bool model() {
    const io::WeightFiles files = weights();
    const fs::path config = request_.in.path / "config.json";
    if (request_.change.blocks && disk::exists(config))
      trained_ = trained_in_rows(io::read_json_file(config), files.metadata(), *request_.change.blocks);
    block_ = block_size_in(config);
    if (!request_.writes_directory()) return one_file(files, given());
    disk::AtomicDirectory out(given(), disk::kModel);
    const bool one = request_.layout == Layout::pth || files.source() != nullptr;
    if (one && !one_file(files, out.beside() / request_.weights_name())) return false;
    if (!one && !each_shard(files, out.beside())) return false;
    take_along(files, out.beside(), one);
    out.commit();
    return true;
  }

  bool each_shard(const io::WeightFiles& files, const fs::path& to) {
    for (const io::SafetensorsReader& shard : files.shards()) {
      const std::vector<OutputTensor> outputs = outputs_of(files, shard);
      Metadata metadata = metadata_after(shard.metadata(), outputs, request_.change);
      metadata.emplace("format", "pt");  // required by transformers
      if (!rewrite(shard, outputs, to / shard.path().filename(), metadata)) return false;
    }
    return true;
  }

  /// Copies the files next to the weights, which have become `one` file or as many as before.
  void take_along(const io::WeightFiles& files, const fs::path& to, bool one) {
    std::set<std::string> weights;
    for (const io::SafetensorsReader& shard : files.shards()) weights.insert(shard.path().filename());
    if (files.source() != nullptr) {
      for (const io::TensorInfo& t : files.tensors()) weights.insert(files.path_of(t.name).filename());
    }
    for (const fs::path& from : disk::entries(request_.in.path)) {
      const std::string name = from.filename().string();
      if (weights.contains(name) || (one && name.ends_with(kIndexEnd))) continue;
      if (name == disk::kOwnedList) continue;
      if (name == "config.json" && request_.change.format) {
        const std::string text = disk::read_text_file(from, kLargestConfig);
        disk::write_file_atomic(
            to / name, config_with_dtype(text, from, io::dtype_of(*request_.change.format), scaled_ > 0));
        result_.copied.push_back(name);
      } else if (name.ends_with(kSafetensorsIndexEnd) && files.shards().size() > 1) {
        write_index(from, to / name);
      } else if (disk::is_directory(from)) {
        result_.left_out.push_back(name + "/");
      } else if (is_other_weights(from) || name.starts_with(".") || !disk::is_file(from)) {
        result_.left_out.push_back(name);
      } else {
        disk::write_file_atomic(to / name, disk::read_text_file(from, kLargestBeside));
        result_.copied.push_back(name);
      }
    }
  }

  /// Returns all tensors of a file under their own names, except scales that are multiplied into weights, and
  /// a head that is tied to another tensor.
  std::vector<OutputTensor> outputs_of(const io::WeightFiles& files, const io::TensorSource& in) {
    const bool applies = request_.change.format && io::bytes_of(io::dtype_of(*request_.change.format)) > 1;
    const bool quantized =
        applies && std::any_of(files.tensors().begin(), files.tensors().end(), [&](const io::TensorInfo& t) {
          return io::scalar_of(t.dtype) && io::bytes_of(t.dtype) == 1 && files.scale_of(t.name) != nullptr;
        });
    std::vector<OutputTensor> outputs;
    for (const io::TensorInfo& tensor : in.tensors()) {
      if (quantized && is_scale_name(tensor.name)) continue;
      if (is_tied_head(in, tensor)) continue;
      OutputTensor output{&tensor, tensor.name};
      if (quantized && io::scalar_of(tensor.dtype)) output.scale = WeightScale::of(files, tensor, block_);
      scaled_ += output.scale != nullptr ? 1 : 0;
      if (const auto found = request_.adapters.find(tensor.name); found != request_.adapters.end())
        output.adapter = found->second;
      outputs.push_back(std::move(output));
    }
    mark_trained(outputs);
    return outputs;
  }

  /// True for a head that the model shares with another tensor. transformers does not store it a second time.
  bool is_tied_head(const io::TensorSource& in, const io::TensorInfo& tensor) {
    if (tensor.name != kHead || request_.in.kind != io::ModelPath::Kind::model) return false;
    const std::vector<std::string> same = in.same_as(tensor);
    const fs::path config = request_.in.path / "config.json";
    if (same.empty() || !disk::exists(config)) return false;
    const nlohmann::json json = io::read_json_file(config);
    const auto tie = json.is_object() ? json.find("tie_word_embeddings") : json.end();
    if (tie != json.end() && *tie != true) return false;
    result_.notes.push_back(fmt::format("{} is tied to {} and left out", kHead, same.front()));
    return true;
  }

  /// Writes the index: the same shards, without the removed scales, and the new total size.
  void write_index(const fs::path& from, const fs::path& to) const {
    nlohmann::json index = io::read_json_file(from);
    if (scaled_ > 0) {
      for (auto it = index["weight_map"].begin(); it != index["weight_map"].end();)
        it = is_scale_name(it.key()) ? index["weight_map"].erase(it) : std::next(it);
    }
    index["metadata"]["total_size"] = result_.bytes_out;
    disk::write_file_atomic(to, index.dump(2) + "\n");
  }

  /// Writes the averages, or the masters, under the weights' names.
  bool state() {
    const io::StateReader state(request_.in.path);
    const io::SafetensorsReader& in = state.tensors().shards().front();
    const std::vector<io::StateWeight> weights = io::state_weights(in.tensors());
    std::vector<io::TensorInfo> tensors;
    for (const io::StateWeight& w : weights) {
      io::TensorInfo tensor = w.tensor;
      tensor.name = w.name;
      std::ranges::copy(io::split_experts(tensor), std::back_inserter(tensors));
    }
    std::vector<OutputTensor> outputs;
    for (const io::TensorInfo& tensor : tensors) outputs.push_back({&tensor, tensor.name});
    Metadata metadata = {{"format", "pt"},
                         {kPolicyKey, state.header().policy},
                         {kHistoryKey, fmt::format("{} of the state of step {}", io::kind_of_weights(weights),
                                                   state.header().step)}};
    if (const std::optional<Scalar> format = narrowest(outputs)) metadata[kRoundedToKey] = name(*format);
    if (std::string amax = io::amax_of_state(in); !amax.empty()) metadata[io::kAmaxKey] = std::move(amax);
    if (const auto& blocks = request_.change.blocks; blocks)
      trained_ = trained_in_rows(nlohmann::json::parse(state.header().model_config, nullptr, false), metadata,
                                 *blocks);
    mark_trained(outputs);
    metadata = metadata_after(std::move(metadata), outputs, request_.change);
    if (!request_.writes_directory()) return rewrite(in, outputs, given(), metadata);
    disk::AtomicDirectory out(given(), disk::kModel);
    if (!rewrite(in, outputs, out.beside() / request_.weights_name(), metadata)) return false;
    const io::Dtype dtype = request_.change.format ? io::dtype_of(*request_.change.format)
                            : narrowest(outputs)   ? io::dtype_of(*narrowest(outputs))
                                                   : io::Dtype::f32;
    disk::write_file_atomic(out.beside() / "config.json",
                            config_with_dtype(state.header().model_config, request_.in.path, dtype));
    result_.copied.push_back("config.json");
    const std::vector<std::string> copied = copy_tokenizer_of_state(request_.in.path, out.beside());
    result_.copied.insert(result_.copied.end(), copied.begin(), copied.end());
    out.commit();
    return true;
  }

  static std::optional<Scalar> narrowest(const std::vector<OutputTensor>& outputs) {
    std::optional<Scalar> format;
    for (const OutputTensor& output : outputs) {
      const std::optional<Scalar> s = io::scalar_of(output.tensor->dtype);
      if (s && (!format || mantissa::bytes_of(*s) < mantissa::bytes_of(*format))) format = s;
    }
    return format;
  }

  void note() {
    const std::optional<Scalar>& format = request_.change.format;
    const char* const system = request_.layout == Layout::pth ? "PyTorch" : "safetensors";
    if (format == Scalar::tf32) {
      result_.notes.push_back(fmt::format(
          "{} has no name for tf32: its values are written as F32, the next wider dtype", system));
    }
    if (!trained_.empty()) {
      result_.notes.push_back(
          fmt::format("{} trained for {}: the values are those with which the run computed, and errors are "
                      "relative to them; other tensors are copied",
                      counted(trained_.size(), "weight", "was", "were"), rounded_to(request_.change)));
    }
    if (request_.change.blocks) {
      const BlockTraits blocks = traits(*request_.change.blocks);
      result_.notes.push_back(
          fmt::format("{} has no name for {}: its values, in blocks of {} along the last axis, are "
                      "written as {}",
                      system, blocks.name, blocks.block, io::safetensors_name(io::dtype_of(*format))));
    }
    if (is_torch_name(request_.in.path) && !request_.writes_directory() &&
        request_.layout == Layout::hugging_face && request_.out.extension() != ".safetensors") {
      result_.notes.push_back(fmt::format(
          "{} is one safetensors file; for a model directory, give the directory of {}, with its config.json",
          request_.out.string(), request_.in.path.filename().string()));
    }
    std::uint64_t others = 0, nonfinite = 0;
    for (const RewrittenTensor& t : result_.tensors) {
      others += io::scalar_of(t.from) ? 0 : 1;
      nonfinite += t.errors.nonfinite;
    }
    if (format && request_.writes_directory() && io::bytes_of(io::dtype_of(*format)) == 1) {
      result_.notes.push_back(
          "PyTorch has no 8-bit models: to load this one with transformers, pass dtype=torch.bfloat16, which "
          "represents every value");
    }
    if (format && others > 0)
      result_.notes.push_back(
          fmt::format("{} copied unchanged: integers, booleans, "
                      "and types that are not number formats of this program",
                      counted(others, "tensor", "was", "were")));
    if (scaled_ > 0)
      result_.notes.push_back(
          fmt::format("scales were multiplied into {} and removed", counted(scaled_, "weight")));
    if (nonfinite > 0)
      result_.notes.push_back(
          fmt::format("{} inf or nan before the conversion", counted(nonfinite, "value", "was", "were")));
  }

  /// Adds one warning with the first few tensors by name.
  void warn() {
    constexpr std::size_t kNamed = 4;
    std::vector<std::string> named;
    std::uint64_t others = 0, values = 0;
    double largest = 0;
    for (const RewrittenTensor& t : result_.tensors) {
      if (t.lost() == 0) continue;
      largest = std::max(largest, t.errors.largest);
      if (named.size() < kNamed) {
        named.push_back(fmt::format("{} of {} of {}", t.lost(), counted(t.errors.count, "value"), t.name));
      } else {
        ++others;
        values += t.lost();
      }
    }
    if (named.empty()) return;
    if (others > 0)
      named.push_back(fmt::format("{} of {}", counted(values, "value"), counted(others, "more tensor")));
    const Change& change = request_.change;
    if (change.blocks) {
      result_.warnings.push_back(
          fmt::format("{} became nan: they share a block of {} with inf, nan or a value beyond f32",
                      fmt::join(named, ", "), rounded_to(change)));
      return;
    }
    const ScalarTraits& format = traits(*change.format);
    result_.warnings.push_back(
        fmt::format("{} became {}: the largest {} is {:g}, and the largest of them {:g}; --saturate keeps "
                    "them finite",
                    fmt::join(named, ", "), format.has_infinity ? "inf" : "nan", name(*change.format),
                    format.max_finite, largest));
  }

  const Request& request_;
  const kernels::Context& ctx_;
  const std::stop_token& stop_;
  std::optional<BlockSize> block_;
  TrainedWeights trained_;
  std::uint64_t scaled_ = 0;  // weights that were multiplied by their scales
  Result result_;
};

}  // namespace

void check_place(const Request& request) {
  const bool whole = request.writes_directory();
  const std::vector<fs::path> inputs = {request.in.path, request.in.weights};
  disk::check_output(
      {request.out, whole ? disk::Shape::directory : disk::Shape::file, request.overwrite, "OUT"}, inputs);
  if (whole) disk::check_replaceable(disk::followed(request.out), disk::kModel);
}

std::optional<Result> convert(const Request& request, const kernels::Context& ctx,
                              const std::stop_token& stop) {
  try {
    Request known = request;
    look_at_names(known);
    return Converter(known, ctx, stop).run();
  } catch (const fs::filesystem_error& error) {
    throw FileError(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  }
}

}  // namespace mantissa::convert
