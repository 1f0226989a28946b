#include "mantissa/files/rwkv/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/files/rwkv/generation.h"
#include "mantissa/files/rwkv/names.h"
#include "mantissa/files/rwkv/renamed_source.h"

namespace mantissa::rwkv {
namespace {

namespace fs = std::filesystem;
using Shape = std::vector<std::int64_t>;

constexpr const char* kSaveAgain = "save the model again with RWKV-LM, or download the file again";

/// Returns the sizes other than 1.
Shape squeezed(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

class Reader {
 public:
  Reader(const io::WeightFiles& files, const fs::path& path, bool any_float)
      : path_(path), any_float_(any_float) {
    for (const io::TensorInfo& t : files.tensors()) {
      const std::string name(without_prefix(t.name));
      if (!tensors_.emplace(name, &t).second) {
        throw FileError("{}: expected tensor {} once, got it with and without \"_forward_module.\". Fix: {}",
                        path_.string(), name_in_quotes(name), kSaveAgain);
      }
    }
  }

  model::ModelConfig config() const {
    const Shape& emb = matrix("emb.weight").shape;
    const Shape& heads = matrix("blocks.0.att.r_k").shape;
    const std::int64_t channels = emb[1];
    if (heads[0] * heads[1] != channels) {
      throw ShapeError(
          "{}: expected heads that divide the {} channels of emb.weight, got tensor \"blocks.0.att.r_k\" [{}]: "
          "{} heads of {}. Fix: {}",
          path_.string(), channels, fmt::join(heads, ", "), heads[0], heads[1], kSaveAgain);
    }
    nlohmann::json json = {{"model_type", "rwkv7"},
                           {"vocab_size", emb[0]},
                           {"hidden_size", channels},
                           {"num_hidden_layers", layers()},
                           {"head_dim", heads[1]},
                           {"num_heads", heads[0]},
                           {"intermediate_size", matrix("blocks.0.ffn.key.weight").shape[0]},
                           {"hidden_act", "sqrelu"},
                           {"norm_eps", kNormEps},
                           {"tie_word_embeddings", false},
                           // Token 0 is between documents.
                           {"bos_token_id", 0},
                           {"eos_token_id", 0}};
    if (heads[1] != 64) json["group_norm_eps"] = kHeadNormEps;
    const auto rank = [&](const char* key, const std::string& name) { json[key] = matrix(name).shape[1]; };
    rank("decay_low_rank_dim", "blocks.0.att.w1");
    rank("a_low_rank_dim", "blocks.0.att.a1");
    rank("gate_low_rank_dim", "blocks.0.att.g1");
    if (layers() > 1) rank("v_low_rank_dim", "blocks.1.att.v1");
    return model::parse_model_config(json, path_.string());
  }

  /// Returns the weights of `config` by their names in the file.
  std::vector<RenamedSource::Entry> entries(const model::ModelConfig& config) {
    std::vector<RenamedSource::Entry> entries;
    const graph::Graph graph = model::build_log_prob(config, 1, 1, false);
    for (const graph::ValueId p : graph.parameters()) {
      const std::string& name = graph.value(p).name;
      const std::optional<OtherName> other = rwkv_name(name);
      if (!other) throw InternalError("RWKV-LM has no name for {}", name);
      const Shape shape = graph.value(p).shape.sizes(), expected = rwkv_shape(shape, other->form);
      const io::TensorInfo& stored = tensor(other->name, expected);
      if (squeezed(stored.shape) != squeezed(expected)) misshapen(other->name, expected, stored);
      check_dtype(other->name, stored);
      const auto bytes = static_cast<std::uint64_t>(stored.count()) * io::bytes_of(stored.dtype);
      entries.push_back(
          {{name, stored.dtype, shape, 0, bytes}, stored.name, other->form == Form::transposed});
      used_.insert(other->name);
    }
    return entries;
  }

  /// Throws for a tensor that is not a weight. Returns notes on those that are not used.
  std::vector<std::string> check_rest() const {
    std::vector<std::string> unused;
    for (const auto& [name, tensor] : tensors_) {
      if (used_.contains(name)) continue;
      if (!is_unused(name)) {
        throw FileError(
            "{}: expected the tensors of RWKV-7 with {} layers, got also {} [{}]. Fix: remove it from the file",
            path_.string(), layers(), name_in_quotes(name), fmt::join(tensor->shape, ", "));
      }
      unused.push_back(name);
    }
    if (unused.empty()) return {};
    return {fmt::format("{} are not used by RWKV-7 and left out", fmt::join(unused, ", "))};
  }

 private:
  /// Returns a tensor, or throws with the shape that it must have; empty: not known.
  const io::TensorInfo& tensor(const std::string& name, const Shape& expected) const {
    const auto found = tensors_.find(name);
    if (found != tensors_.end()) return *found->second;
    throw FileError("{}: expected tensor {}{} of RWKV-7, got none of this name. Fix: {}", path_.string(),
                    name_in_quotes(name),
                    expected.empty() ? "" : fmt::format(" [{}]", fmt::join(expected, ", ")), kSaveAgain);
  }
  const io::TensorInfo& matrix(const std::string& name) const {
    const io::TensorInfo& found = tensor(name, {});
    const auto bad = [](std::int64_t size) { return size < 1; };
    if (found.shape.size() == 2 && std::ranges::none_of(found.shape, bad)) return found;
    throw ShapeError("{}: expected a matrix for tensor {}, got [{}]. Fix: {}", path_.string(),
                     name_in_quotes(name), fmt::join(found.shape, ", "), kSaveAgain);
  }

  [[noreturn]] void misshapen(const std::string& name, const Shape& expected,
                              const io::TensorInfo& stored) const {
    throw ShapeError("{}: expected tensor {} [{}] by the sizes of the other tensors, got [{}]. Fix: {}",
                     path_.string(), name_in_quotes(name), fmt::join(expected, ", "),
                     fmt::join(stored.shape, ", "), kSaveAgain);
  }

  void check_dtype(const std::string& name, const io::TensorInfo& stored) const {
    const bool read =
        stored.dtype == io::Dtype::f32 || stored.dtype == io::Dtype::bf16 || stored.dtype == io::Dtype::f16;
    const bool floating = io::scalar_of(stored.dtype).has_value();
    if (read || (any_float_ && floating)) return;
    const std::string cure = floating ? fmt::format("mantissa convert {} OUT.pth --dtype f32", path_.string())
                                      : std::string("save it as a floating-point tensor, in Python .float()");
    throw DtypeError("{}: expected F32, BF16 or F16 for tensor {}, got {}. Fix: {}", path_.string(),
                     name_in_quotes(name), io::safetensors_name(stored.dtype), cure);
  }

  /// Returns one more than the largest number of a layer. A missing layer is found with its tensors.
  std::int64_t layers() const {
    std::int64_t count = 0;
    for (const auto& [name, tensor] : tensors_) {
      constexpr std::string_view kBlocks = "blocks.";
      if (!name.starts_with(kBlocks)) continue;
      std::int64_t layer = -1;
      const char *begin = name.data() + kBlocks.size(), *end = name.data() + name.size();
      const auto [stop, error] = std::from_chars(begin, end, layer);
      if (error == std::errc() && stop != end && *stop == '.' && layer < 1'000'000)
        count = std::max(count, layer + 1);
    }
    return count;
  }

  const fs::path& path_;
  bool any_float_;
  std::map<std::string, const io::TensorInfo*> tensors_;  // by their names without prefix
  std::set<std::string> used_;
};

}  // namespace

Checkpoint open_checkpoint(io::WeightFiles files, const fs::path& path, bool any_float) {
  check_generation(files.tensors(), path);
  Reader reader(files, path, any_float);
  Checkpoint found{reader.config(), nullptr, files.notes()};
  std::vector<RenamedSource::Entry> entries = reader.entries(found.config);
  for (std::string& note : reader.check_rest()) found.notes.push_back(std::move(note));
  std::map<std::string, std::string> metadata = files.metadata();
  found.weights =
      std::make_shared<const RenamedSource>(std::move(files), path, std::move(entries), std::move(metadata));
  return found;
}

bool is_checkpoint(const fs::path& path) {
  return disk::is_file(path) && has_rwkv_names(io::WeightFiles(path).tensors());
}

}  // namespace mantissa::rwkv
