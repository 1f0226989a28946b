// The weights of a model in a GGUF file, as the tensors of a Hugging Face file: their names, and values whose
// rearrangement by llama.cpp is undone.
#pragma once

#include <memory>
#include <mutex>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/gguf/architecture.h"
#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::gguf {

class ModelWeights final : public io::TensorSource {
 public:
  /// Finds every weight of the model. `ignored` names tensors of the file that are not weights. Throws
  /// FileError, naming the tensor, if one is missing, has the wrong shape or an unsupported type, or is not a
  /// weight of this architecture.
  ModelWeights(std::shared_ptr<const GgufFile> file, const Architecture& architecture,
               const model::ModelConfig& config, const std::vector<std::string>& ignored,
               std::map<std::string, std::string> metadata);

  const std::vector<io::TensorInfo>& tensors() const override { return tensors_; }
  const std::map<std::string, std::string>& metadata() const override { return metadata_; }
  const std::filesystem::path& path() const override { return file_->path(); }
  /// The pages of the file that it reads do not stay in memory.
  void read(const io::TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const override;
  void release(std::span<const std::byte> part) const override { file_->release(part); }

  std::span<const std::byte> in_memory(const io::TensorInfo& tensor) const override;
  /// Matrices of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0. Those of heads are copied, with their rows in order.
  std::optional<io::QuantizedTensor> quantized(const io::TensorInfo& tensor) const override;

  /// Returns the tensor of the file that holds a weight.
  const FileTensor& stored(const io::TensorInfo& tensor) const { return *place(tensor).from; }

 private:
  struct Place {
    const FileTensor* from = nullptr;
    Transform transform = Transform::none;
    std::int64_t heads = 1;   // whose rows are interleaved
    std::uint64_t first = 0;  // element of `from` with which the weight begins
  };

  const Place& place(const io::TensorInfo& tensor) const { return places_.at(tensor.name); }
  /// Adds a weight; of experts, the tensor of each.
  void add(const std::string& name, const std::vector<std::int64_t>& shape, const GgufName& in_file,
           const model::ModelConfig& config);
  void read_stored(const Place& from, const io::TensorInfo& tensor, std::span<std::byte> out,
                   std::uint64_t offset) const;
  void read_heads(const Place& from, const io::TensorInfo& tensor, std::span<std::byte> out,
                  std::uint64_t first) const;
  std::shared_ptr<const std::vector<std::byte>> transposed(const FileTensor& from,
                                                           const io::TensorInfo& tensor) const;

  std::shared_ptr<const GgufFile> file_;
  std::vector<io::TensorInfo> tensors_;
  std::map<std::string, Place> places_;
  std::map<std::string, std::string> metadata_;

  mutable std::mutex mutex_;  // of the matrix that was transposed last
  mutable const FileTensor* last_ = nullptr;
  mutable std::shared_ptr<const std::vector<std::byte>> last_values_;
};

}  // namespace mantissa::gguf
