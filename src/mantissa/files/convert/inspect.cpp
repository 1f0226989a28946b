#include "mantissa/files/convert/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "mantissa/files/convert/channel_stats.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/convert/shared_storages.h"
#include "mantissa/files/gguf/file_tensors.h"
#include "mantissa/files/gguf/origin.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {
namespace {

/// Describes where the values come from, by the metadata and the values themselves.
std::string origin_of(const Metadata& metadata, const Survey& all) {
  std::vector<std::string> said;
  const auto say = [&](const char* key, const char* words) {
    if (const auto it = metadata.find(key); it != metadata.end())
      said.push_back(fmt::format("{} {}", words, it->second));
  };
  say(kPolicyKey, "written by mantissa under");
  say(kHistoryKey, "converted:");
  say(kRoundedToKey, "last rounded to");
  if (const std::optional<Scalar> format = all.lies_in(); format && *format != Scalar::f32) {
    said.push_back(fmt::format("every value is {} {}: the weights come from {} bits",
                               *format == Scalar::bf16 || *format == Scalar::tf32 ? "a" : "an", name(*format),
                               *format == Scalar::tf32 ? 19 : 8 * bytes_of(*format)));
  }
  return said.empty() ? "unknown" : fmt::format("{}", fmt::join(said, "; "));
}

/// Returns the outliers within a matrix or a vector.
std::vector<Outlier> outliers_within(const io::WeightFiles& files, const io::TensorInfo& tensor,
                                     const kernels::Context& ctx) {
  if (has_channels(tensor)) return channel_outliers(tensor.name, channel_stats(files, tensor, ctx));
  if (tensor.shape.size() != 1) return {};
  if (tensor.count() < 1 || tensor.count() > kMostChannels) return {};
  io::TensorInfo column = tensor;
  column.shape.push_back(1);
  return element_outliers(tensor.name, channel_stats(files, column, ctx).rows);
}

void add_layers(Inspection& inspection) {
  std::vector<TensorSize> tensors;
  for (const InspectedTensor& t : inspection.tensors) {
    if (!t.seen || t.seen->values.finite() == 0) continue;
    const ValueStats& v = t.seen->values;
    tensors.push_back({t.tensor.name, v.rms(), std::max(std::abs(v.min), std::abs(v.max))});
  }
  const std::vector<Outlier> found = layer_outliers(tensors);
  inspection.outliers.insert(inspection.outliers.end(), found.begin(), found.end());
}

void add_types(const gguf::GgufFile& file, Inspection& inspection) {
  inspection.types = gguf::type_counts(file);
  inspection.metadata = gguf::origin_of(file);
  inspection.values = inspection.bytes = 0;
  for (const gguf::TypeCount& count : inspection.types) {
    inspection.values += count.values;
    inspection.bytes += count.bytes;
  }
}

}  // namespace

Inspection inspect(const std::filesystem::path& path, const kernels::Context& ctx) {
  Inspection out;
  const io::ModelPath source = io::open_model(path);
  out.path = source.weights;
  std::shared_ptr<const gguf::GgufFile> foreign;
  if (source.kind == io::ModelPath::Kind::gguf)
    foreign = std::make_shared<const gguf::GgufFile>(source.weights);
  const io::WeightFiles files = foreign == nullptr
                                    ? io::WeightFiles(source.weights)
                                    : io::WeightFiles(std::make_shared<gguf::FileTensors>(foreign));
  for (const io::TensorInfo& tensor : files.tensors()) {
    InspectedTensor& row = out.tensors.emplace_back();
    row.tensor = tensor;
    out.values += static_cast<std::uint64_t>(tensor.count());
    if (foreign != nullptr) {
      row.stored = foreign->find(tensor.name)->type->name;
      row.tensor.shape = foreign->find(tensor.name)->shape;
    }
    if (!io::scalar_of(tensor.dtype) || tensor.count() == 0) continue;
    row.seen = survey(files, tensor, ctx);
    out.all.merge(*row.seen);
    const std::vector<Outlier> found = outliers_within(files, tensor, ctx);
    out.outliers.insert(out.outliers.end(), found.begin(), found.end());
  }
  find_shared_storages(files, out.tensors);
  add_layers(out);
  std::ranges::stable_sort(out.outliers, std::ranges::greater(), &Outlier::distance);
  out.bytes = files.bytes();
  out.metadata = files.metadata();
  out.notes = files.notes();
  if (foreign != nullptr) add_types(*foreign, out);
  out.origin = origin_of(out.metadata, out.all);
  return out;
}

}  // namespace mantissa::convert
