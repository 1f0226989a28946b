#include "mantissa/files/convert/gguf_out.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/engine/model/family.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/convert/gguf_values.h"
#include "mantissa/files/convert/input_model.h"
#include "mantissa/files/convert/pieces.h"
#include "mantissa/files/convert/trained_weights.h"
#include "mantissa/files/gguf/k_quants.h"
#include "mantissa/files/gguf/quants.h"
#include "mantissa/files/gguf/write_config.h"
#include "mantissa/files/gguf/write_tokenizer.h"
#include "mantissa/files/io/expert_tensors.h"

namespace mantissa::convert {
namespace {

namespace fs = std::filesystem;
using gguf::TensorType;

constexpr const char* kPositions = "position_embd.weight";

/// Returns true for the tensors that have the type of matrices.
bool is_matrix(const std::string& name, const std::vector<std::int64_t>& shape) {
  if (gguf::is_of_experts(name)) return true;
  return shape.size() == 2 && name != kPositions && !gguf::is_router(name);
}

class Writer {
 public:
  Writer(const Request& request, const kernels::Context& ctx)
      : request_(request),
        ctx_(ctx),
        model_(joined(model_of(request.in, "gguf"))),
        architecture_(gguf::writable_architecture(model_.config)) {
    const graph::Graph graph = model::build_log_prob(model_.config, 1, 1, false);
    trained_ = trained_weights(graph, model_.files.metadata());
    for (const graph::ValueId p : graph.parameters()) add(graph.value(p).name, graph.value(p).shape.sizes());
  }

  std::optional<Result> run(const std::stop_token& stop) {
    const std::string header = write_header();
    disk::AtomicFile file(disk::given(request_.out, request_.overwrite));
    const gguf::TensorToStore& last = stored_.back();
    file.reserve(last.begin + (last.bytes() + 31) / 32 * 32);
    file.write_at(0, std::as_bytes(std::span(header)));
    if (!factors_.empty()) file.write_at(stored_.front().begin, std::as_bytes(std::span(factors_)));
    std::vector<std::pair<std::size_t, RowRange>> pieces;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      for (const RowRange& rows : row_ranges(sources_[i])) pieces.emplace_back(i, rows);
    }
    std::vector<ErrorStats> errors(pieces.size());
    for_each_on_threads(ctx_, pieces.size(), [&](std::size_t p, int) {
      if (stop.stop_requested()) return;
      const auto& [i, rows] = pieces[p];
      const gguf::TensorToStore& to = stored_[sources_[i].to + first_];
      std::vector<std::byte> out;
      errors[p] = encode_rows(model_.files, sources_[i], to.type, rows, request_.change, out);
      const std::uint64_t before = sources_[i].first * 4;  // parts are F32
      file.write_at(to.begin + before + rows.first * out.size() / rows.count, out);
    });
    if (stop.stop_requested()) return std::nullopt;
    for (std::size_t p = 0; p < pieces.size(); ++p)
      result_.tensors[sources_[pieces[p].first].to].errors.merge(errors[p]);
    file.commit();
    note_losses();
    return std::move(result_);
  }

 private:
  static InputModel joined(InputModel model) {
    model.files = io::with_joined_experts(std::move(model.files));
    return model;
  }

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    const std::optional<gguf::GgufName> in_file = gguf::gguf_name(architecture_, name);
    if (!in_file) {
      throw ConfigError("--format gguf: llama.cpp's {} has no tensor for {}. Fix: write another --format",
                        architecture_.name, name);
    }
    const io::TensorInfo* tensor = model_.files.find(name);
    const std::string_view prefix = model_.config.family->trunk_prefix;
    if (tensor == nullptr && name.starts_with(prefix)) tensor = model_.files.find(name.substr(prefix.size()));
    if (tensor == nullptr) throw FileError("{}: has no tensor {}", request_.in.path.string(), name);
    if (tensor->shape != shape || !io::scalar_of(tensor->dtype)) {
      throw ShapeError("{}: tensor {} is {} [{}], but config.json describes floating-point values of [{}]",
                       request_.in.path.string(), name, io::safetensors_name(tensor->dtype),
                       fmt::join(tensor->shape, ", "), fmt::join(shape, ", "));
    }
    // Other dtypes are rounded to F32 only if --dtype says so.
    if (!request_.change.format && !request_.quantized) type_of(tensor->dtype, name);
    const auto trained = trained_.find(name);
    const WeightFormat format = trained == trained_.end() ? WeightFormat::none : trained->second.format;
    store(*tensor, *in_file, in_file->name, format);
    if (const std::string copy = gguf::copy_in(architecture_, in_file->name); !copy.empty())
      store(*tensor, *in_file, copy, format);
  }

  /// Adds a weight as the tensor `name`, or as a part of it. `trained` is the format for which it was
  /// trained.
  void store(const io::TensorInfo& tensor, const gguf::GgufName& in_file, const std::string& name,
             WeightFormat trained) {
    GgufSource source{&tensor, in_file.transform, gguf::heads_of(model_.config, in_file.transform),
                      hash_name(name)};
    const auto found = std::ranges::find(stored_, name, &gguf::TensorToStore::name);
    source.to = static_cast<std::size_t>(found - stored_.begin());
    if (found == stored_.end()) {
      gguf::TensorToStore to{name, TensorType::f32, gguf::gguf_shape(tensor.shape, in_file.transform)};
      if (is_matrix(to.name, to.shape)) to.type = matrix_type(tensor, to);
      stored_.push_back(std::move(to));
    }
    source.first = static_cast<std::uint64_t>(in_file.part * tensor.count());
    if (request_.quantized && gguf::lower_name(traits(*request_.quantized)) == mantissa::name(trained))
      source.trained = trained;
    sources_.push_back(source);
  }

  TensorType matrix_type(const io::TensorInfo& tensor, const gguf::TensorToStore& to) {
    if (!request_.quantized)
      return type_of(request_.change.format ? io::dtype_of(*request_.change.format) : tensor.dtype,
                     tensor.name);
    if (gguf::is_low_rank(architecture_, to.name)) {
      ++low_rank_;
      return TensorType::f32;
    }
    const auto fits = [&](TensorType type) {
      return to.shape.back() % static_cast<std::int64_t>(traits(type).block) == 0;
    };
    const TensorType type = *request_.quantized;
    if (fits(type)) return type;
    // K types have blocks of 256, which are longer than some models are wide.
    const TensorType instead =
        gguf::is_k_type(type) && fits(TensorType::q8_0) ? TensorType::q8_0 : TensorType::f32;
    unfit_[instead].push_back(to.name);
    return instead;
  }

  std::string write_header() {
    gguf::HeaderWriter header;
    header.add("general.architecture", architecture_.name);
    header.add("general.type", "model");
    const fs::path name = request_.in.path.filename();
    if (!name.empty()) header.add("general.name", name.stem().string());
    header.add("general.file_type", file_type());
    if (request_.quantized) header.add("general.quantization_version", 2U);
    for (const auto& [key, value] : origin()) {
      if (key.starts_with("mantissa.") && key != io::kAmaxKey) header.add(key, value);
    }
    result_.notes = gguf::write_config(model_.config, architecture_, header);
    const std::vector<std::string> notes =
        gguf::write_tokenizer(model_.read, model_.folder, model_.config, header);
    result_.notes.insert(result_.notes.end(), notes.begin(), notes.end());
    for (std::size_t i = 0; i < stored_.size(); ++i) describe(i);
    factors_ = gguf::rope_factors(model_.config);
    first_ = factors_.empty() ? 0 : 1;
    if (!factors_.empty()) {
      stored_.insert(stored_.begin(),
                     {"rope_freqs.weight", TensorType::f32, {static_cast<std::int64_t>(factors_.size())}});
    }
    return header.finish(stored_);
  }

  void describe(std::size_t i) {
    const auto is_source = [i](const GgufSource& source) { return source.to == i; };
    const io::TensorInfo& from = *std::ranges::find_if(sources_, is_source)->tensor;
    RewrittenTensor row{stored_[i].name, stored_[i].shape, from.dtype, io::Dtype::f32, false};
    row.to_name = traits(stored_[i].type).name;
    for (const GgufSource& source : sources_)
      result_.bytes_in += is_source(source) ? source.tensor->end - source.tensor->begin : 0;
    result_.bytes_out += stored_[i].bytes();
    result_.tensors.push_back(std::move(row));
  }

  /// Returns llama.cpp's number for the type of most matrices.
  std::uint32_t file_type() const {
    std::map<TensorType, std::uint64_t> values;
    for (const gguf::TensorToStore& tensor : stored_) values[tensor.type] += tensor.count();
    const auto most = std::ranges::max_element(values, {}, [](const auto& entry) { return entry.second; });
    switch (most->first) {
      case TensorType::f16:
        return 1;
      case TensorType::q4_0:
        return 2;
      case TensorType::mxfp4:
        return 38;
      case TensorType::q3_k:
        return 11;
      case TensorType::q4_k:
        return 14;
      case TensorType::q5_k:
        return 16;
      case TensorType::q6_k:
        return 18;
      case TensorType::q8_0:
        return 7;
      case TensorType::bf16:
        return 32;
      default:
        return 0;
    }
  }

  Metadata origin() const {
    std::vector<OutputTensor> outputs;
    for (const GgufSource& source : sources_) outputs.push_back({source.tensor, source.tensor->name});
    if (!request_.quantized) return metadata_after(model_.files.metadata(), outputs, request_.change);
    Metadata metadata = model_.files.metadata();
    std::string& history = metadata[kHistoryKey];
    const std::string type = gguf::lower_name(traits(*request_.quantized));
    history += (history.empty() ? "" : "; ") + fmt::format("matrices rounded to {}", type);
    metadata[kRoundedToKey] = type;
    return metadata;
  }

  void note_losses() {
    const auto is_trained = [](const GgufSource& s) { return s.trained != WeightFormat::none; };
    const auto matrices = std::ranges::count_if(sources_, is_trained);
    if (matrices > 0) {
      result_.notes.push_back(fmt::format(
          "{} trained for {}: the values are those with which the run computed, and errors are "
          "relative to them",
          counted(matrices, "weight", "was", "were"), gguf::lower_name(traits(*request_.quantized))));
    }
    constexpr std::size_t kShown = 4;
    for (const auto& [type, names] : unfit_) {
      const std::span<const std::string> shown(names.data(), std::min(names.size(), kShown));
      const std::size_t others = names.size() - shown.size();
      result_.notes.push_back(fmt::format("written as {}, since rows do not divide into blocks of {}: {}{}",
                                          traits(type).name, traits(*request_.quantized).block,
                                          fmt::join(shown, ", "),
                                          others == 0 ? "" : " and " + counted(others, "other")));
    }
    if (low_rank_ > 0) {
      result_.notes.push_back(fmt::format(
          "{} written as F32, which llama.cpp does not quantize",
          low_rank_ == 1 ? "1 low-rank matrix was" : fmt::format("{} low-rank matrices were", low_rank_)));
    }
    std::size_t widened = 0, routers = 0;
    for (const RewrittenTensor& tensor : result_.tensors) {
      if (tensor.from == io::Dtype::f32 || is_matrix(tensor.name, tensor.shape)) continue;
      (gguf::is_router(tensor.name) ? routers : widened) += tensor.name == kPositions ? 0 : 1;
    }
    for (const auto& [count, noun] : {std::pair(widened, "vector"), {routers, "router"}}) {
      if (count == 0) continue;
      result_.notes.push_back(fmt::format("{} written as F32, which is what llama.cpp reads",
                                          counted(count, noun, "was", "were")));
    }
    std::size_t shifted = 0;
    for (const GgufSource& source : sources_)
      shifted +=
          source.transform == gguf::Transform::plus_one && result_.tensors[source.to].errors.max_abs > 0 ? 1
                                                                                                         : 0;
    if (shifted > 0) {
      result_.notes.push_back(fmt::format("{} rounded: llama.cpp stores gains plus 1, in F32",
                                          counted(shifted, "gain vector", "was", "were")));
    }
  }

  const Request& request_;
  const kernels::Context& ctx_;
  InputModel model_;
  const gguf::Architecture& architecture_;
  TrainedWeights trained_;
  std::vector<GgufSource> sources_;
  std::vector<gguf::TensorToStore> stored_;  // after write_header(), the RoPE factors come first
  std::vector<float> factors_;
  std::size_t first_ = 0;                                 // index of the first weight in stored_
  std::map<TensorType, std::vector<std::string>> unfit_;  // names by the type that they have instead
  std::size_t low_rank_ = 0;
  Result result_;
};

}  // namespace

std::optional<Result> write_gguf(const Request& request, const kernels::Context& ctx,
                                 const std::stop_token& stop) {
  return Writer(request, ctx).run(stop);
}

}  // namespace mantissa::convert
