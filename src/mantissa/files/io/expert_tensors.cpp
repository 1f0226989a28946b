#include "mantissa/files/io/expert_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::io {
namespace {

constexpr std::string_view kPart = ".experts.";
constexpr std::int64_t kMostExperts = 4096;

/// The tensors of `files`; those of experts read from one after the other.
class JoinedExperts final : public TensorSource {
 public:
  explicit JoinedExperts(WeightFiles files) : files_(std::move(files)) {
    std::map<std::string, std::map<std::int64_t, const TensorInfo*>> experts;
    for (const TensorInfo& t : files_.tensors()) {
      if (const auto of = parse_expert_tensor(t.name)) experts[of->parameter][of->expert] = &t;
    }
    for (const TensorInfo& t : files_.tensors()) {
      const auto of = parse_expert_tensor(t.name);
      if (!of) {
        tensors_.push_back(t);
      } else if (of->expert == experts.at(of->parameter).begin()->first) {
        check(of->parameter, experts.at(of->parameter));
        add(of->parameter, experts.at(of->parameter));
      }
    }
  }

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return files_.metadata(); }
  const std::filesystem::path& path() const override { return files_.path_of(files_.tensors().front().name); }
  const std::filesystem::path& path_of(const TensorInfo& tensor) const override {
    const auto parts = parts_.find(tensor.name);
    return files_.path_of(parts == parts_.end() ? tensor.name : parts->second.front());
  }
  void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override {
    const auto parts = parts_.find(tensor.name);
    if (parts == parts_.end()) return files_.read(tensor.name, out, offset);
    const std::uint64_t bytes = (tensor.end - tensor.begin) / parts->second.size();
    while (!out.empty()) {
      const std::uint64_t within = offset % bytes, size = std::min<std::uint64_t>(out.size(), bytes - within);
      files_.read(parts->second[offset / bytes], out.first(size), within);
      out = out.subspan(size);
      offset += size;
    }
  }
  std::vector<std::string> notes() const override { return files_.notes(); }
  /// Of experts that follow each other in memory too, as in GGUF files.
  std::span<const std::byte> in_memory(const TensorInfo& tensor) const override {
    const TensorSource* source = files_.source();
    if (source == nullptr) return {};
    const auto parts = parts_.find(tensor.name);
    if (parts == parts_.end()) return source->in_memory(*files_.find(tensor.name));
    std::span<const std::byte> all;
    for (const std::string& name : parts->second) {
      const std::span<const std::byte> part = source->in_memory(*files_.find(name));
      if (part.empty() || (!all.empty() && part.data() != all.data() + all.size())) return {};
      all = all.empty() ? part : std::span(all.data(), all.size() + part.size());
    }
    return all;
  }
  void release(std::span<const std::byte> part) const override {
    if (files_.source() != nullptr) files_.source()->release(part);
  }
  std::optional<QuantizedTensor> quantized(const TensorInfo& tensor) const override {
    return parts_.contains(tensor.name) ? std::nullopt : files_.quantized(tensor.name);
  }

 private:
  using Parts = std::map<std::int64_t, const TensorInfo*>;

  /// Throws if they are not those of experts 0, 1, … with one shape and dtype.
  void check(const std::string& parameter, const Parts& parts) const {
    const TensorInfo& first = *parts.begin()->second;
    std::int64_t next = 0;
    for (const auto& [expert, tensor] : parts) {
      if (expert != next++) {
        throw FileError("{}: tensor {} is missing, but that of expert {} is there; download the model again",
                        files_.path_of(tensor->name).string(),
                        name_in_quotes(expert_tensor(parameter, next - 1)), expert);
      }
      if (tensor->shape == first.shape && tensor->dtype == first.dtype) continue;
      throw ShapeError(
          "{}: tensor {} is {} [{}], but that of expert 0 is {} [{}]; the experts of a layer are alike",
          files_.path_of(tensor->name).string(), name_in_quotes(tensor->name),
          safetensors_name(tensor->dtype), fmt::join(tensor->shape, ", "), safetensors_name(first.dtype),
          fmt::join(first.shape, ", "));
    }
  }

  void add(const std::string& parameter, const Parts& parts) {
    TensorInfo joined = *parts.begin()->second;
    joined.name = parameter;
    joined.shape.insert(joined.shape.begin(), std::ssize(parts));
    joined.end = joined.begin + (joined.end - joined.begin) * parts.size();
    tensors_.push_back(std::move(joined));
    std::vector<std::string>& names = parts_[parameter];
    for (const auto& [expert, tensor] : parts) names.push_back(tensor->name);
  }

  WeightFiles files_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::vector<std::string>> parts_;  // of the joined tensors, the names in the files
};

}  // namespace

bool is_of_experts(std::string_view parameter) {
  const std::size_t at = parameter.find(kPart);
  return at != std::string_view::npos && !parse_expert_tensor(parameter);
}

std::string expert_tensor(std::string_view parameter, std::int64_t expert) {
  const std::size_t end = parameter.find(kPart) + kPart.size();
  return fmt::format("{}{}.{}", parameter.substr(0, end), expert, parameter.substr(end));
}

std::optional<ExpertTensor> parse_expert_tensor(std::string_view tensor) {
  const std::size_t at = tensor.find(kPart);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = tensor.substr(at + kPart.size());
  const std::size_t digits = rest.find('.');
  if (digits == std::string_view::npos || digits == 0) return std::nullopt;
  ExpertTensor e;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, e.expert);
  if (error != std::errc() || end != rest.data() + digits || e.expert < 0 || e.expert >= kMostExperts)
    return std::nullopt;
  e.parameter = fmt::format("{}{}", tensor.substr(0, at + kPart.size()), rest.substr(digits + 1));
  return e;
}

std::vector<TensorInfo> split_experts(const TensorInfo& tensor) {
  if (!is_of_experts(tensor.name) || tensor.shape.size() != 3) return {tensor};
  std::vector<TensorInfo> parts;
  const std::int64_t experts = tensor.shape.front();
  const std::uint64_t bytes =
      experts == 0 ? 0 : (tensor.end - tensor.begin) / static_cast<std::uint64_t>(experts);
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::uint64_t begin = tensor.begin + static_cast<std::uint64_t>(e) * bytes;
    parts.push_back({expert_tensor(tensor.name, e),
                     tensor.dtype,
                     {tensor.shape[1], tensor.shape[2]},
                     begin,
                     begin + bytes});
  }
  return parts;
}

WeightFiles with_joined_experts(WeightFiles files) {
  const auto is_expert = [](const TensorInfo& t) { return parse_expert_tensor(t.name).has_value(); };
  if (std::ranges::none_of(files.tensors(), is_expert)) return files;
  return WeightFiles(std::shared_ptr<const TensorSource>(std::make_shared<JoinedExperts>(std::move(files))));
}

std::vector<TensorToWrite> with_split_experts(std::vector<TensorToWrite> tensors) {
  std::vector<TensorToWrite> all;
  for (TensorToWrite& t : tensors) {
    TensorInfo info{t.name, t.dtype, t.shape};
    info.end = static_cast<std::uint64_t>(info.count()) * bytes_of(t.dtype);
    for (const TensorInfo& part : split_experts(info)) {
      TensorToWrite& out = all.emplace_back(TensorToWrite{part.name, t.dtype, part.shape});
      if (!t.bytes.empty()) out.bytes = t.bytes.subspan(part.begin, part.end - part.begin);
      if (t.fill) {
        out.fill = [fill = t.fill, begin = part.begin](std::uint64_t offset, std::span<std::byte> to) {
          fill(begin + offset, to);
        };
      }
    }
  }
  return all;
}

}  // namespace mantissa::io
