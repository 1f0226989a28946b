#include "mantissa/setup/weights/expert_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/engine/model/experts.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::weights {
namespace {

/// The tensors of `files`; those of experts read from one after the other.
class JoinedExperts final : public io::TensorSource {
 public:
  explicit JoinedExperts(io::WeightFiles files) : files_(std::move(files)) {
    std::map<std::string, std::map<std::int64_t, const io::TensorInfo*>> experts;
    for (const io::TensorInfo& t : files_.tensors()) {
      if (const auto of = model::parse_expert_tensor(t.name)) experts[of->parameter][of->expert] = &t;
    }
    for (const io::TensorInfo& t : files_.tensors()) {
      const auto of = model::parse_expert_tensor(t.name);
      if (!of) {
        tensors_.push_back(t);
      } else if (of->expert == experts.at(of->parameter).begin()->first) {
        check(of->parameter, experts.at(of->parameter));
        add(of->parameter, experts.at(of->parameter));
      }
    }
  }

  const std::vector<io::TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return files_.metadata(); }
  const std::filesystem::path& path() const override { return files_.path_of(files_.tensors().front().name); }
  const std::filesystem::path& path_of(const io::TensorInfo& tensor) const override {
    const auto parts = parts_.find(tensor.name);
    return files_.path_of(parts == parts_.end() ? tensor.name : parts->second.front());
  }
  void read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override {
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

 private:
  using Parts = std::map<std::int64_t, const io::TensorInfo*>;

  /// Throws if they are not those of experts 0, 1, … with one shape and dtype.
  void check(const std::string& parameter, const Parts& parts) const {
    const io::TensorInfo& first = *parts.begin()->second;
    std::int64_t next = 0;
    for (const auto& [expert, tensor] : parts) {
      if (expert != next++) {
        throw FileError("{}: tensor {} is missing, but that of expert {} is there; download the model again",
                        files_.path_of(tensor->name).string(),
                        name_in_quotes(model::expert_tensor(parameter, next - 1)), expert);
      }
      if (tensor->shape == first.shape && tensor->dtype == first.dtype) continue;
      throw ShapeError(
          "{}: tensor {} is {} [{}], but that of expert 0 is {} [{}]; the experts of a layer are alike",
          files_.path_of(tensor->name).string(), name_in_quotes(tensor->name),
          io::safetensors_name(tensor->dtype), fmt::join(tensor->shape, ", "),
          io::safetensors_name(first.dtype), fmt::join(first.shape, ", "));
    }
  }

  void add(const std::string& parameter, const Parts& parts) {
    io::TensorInfo joined = *parts.begin()->second;
    joined.name = parameter;
    joined.shape.insert(joined.shape.begin(), std::ssize(parts));
    joined.end = joined.begin + (joined.end - joined.begin) * parts.size();
    tensors_.push_back(std::move(joined));
    std::vector<std::string>& names = parts_[parameter];
    for (const auto& [expert, tensor] : parts) names.push_back(tensor->name);
  }

  io::WeightFiles files_;
  std::vector<io::TensorInfo> tensors_;
  std::map<std::string, std::vector<std::string>> parts_;  // of the joined tensors, the names in the files
};

}  // namespace

io::WeightFiles with_joined_experts(io::WeightFiles files) {
  const auto is_expert = [](const io::TensorInfo& t) {
    return model::parse_expert_tensor(t.name).has_value();
  };
  if (std::ranges::none_of(files.tensors(), is_expert)) return files;
  return io::WeightFiles(
      std::shared_ptr<const io::TensorSource>(std::make_shared<JoinedExperts>(std::move(files))));
}

std::vector<io::TensorToWrite> with_split_experts(std::vector<io::TensorToWrite> tensors) {
  std::vector<io::TensorToWrite> all;
  for (io::TensorToWrite& t : tensors) {
    if (!model::is_of_experts(t.name) || t.shape.size() != 3) {
      all.push_back(std::move(t));
      continue;
    }
    const std::int64_t experts = t.shape.front();
    const std::uint64_t bytes = static_cast<std::uint64_t>(t.shape[1] * t.shape[2]) * io::bytes_of(t.dtype);
    for (std::int64_t e = 0; e < experts; ++e) {
      io::TensorToWrite part = t;
      part.name = model::expert_tensor(t.name, e);
      part.shape.erase(part.shape.begin());
      const std::uint64_t begin = static_cast<std::uint64_t>(e) * bytes;
      if (!t.bytes.empty()) part.bytes = t.bytes.subspan(begin, bytes);
      if (t.fill) {
        part.fill = [fill = t.fill, begin](std::uint64_t offset, std::span<std::byte> out) {
          fill(begin + offset, out);
        };
      }
      all.push_back(std::move(part));
    }
  }
  return all;
}

}  // namespace mantissa::weights
