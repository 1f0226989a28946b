#include "mantissa/files/rwkv/generation.h"

#include <algorithm>
#include <string_view>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/files/rwkv/names.h"

namespace mantissa::rwkv {
namespace {

/// A generation that has a tensor whose name contains `mark`. The first one that fits is the model's.
struct Generation {
  std::string_view mark;
  bool matrix;  // that tensor is a matrix
  const char* name;
  const char* difference;
};

constexpr const char* kDeepEmbed =
    "its channel mixing multiplies by values that each token looks up in a table (DeepEmbed)";

constexpr Generation kOthers[] = {
    {".ffn.enn.", false, "RWKV-8", kDeepEmbed},
    {".qkv.", false, "RWKV-7b or RWKV-8",
     "its layers have attention beside the recurrence (DeepEmbedAttention)"},
    {".ffn.s_emb", false, "RWKV-7a", kDeepEmbed},
    {".att.time_aaa", false, "a preview of RWKV-7",
     "its mixtures with the previous token have low-rank parts, which x070 was released without"},
    {".att.time_maa_", false, "RWKV-6 (x060)",
     "its mixtures with the previous token depend on the token, and its state has no delta rule"},
    {".att.time_decay", true, "RWKV-5.2 (x052)",
     "its decay is the same for every token, and its state has no delta rule"},
    {".att.gate.weight", false, "RWKV-5.1",
     "its decay is one number for each head, and its state has no delta rule"},
    {".att.ln_x.", false, "RWKV-5", "its decay is one number for each head, and its state has no delta rule"},
    {".att.time_decay", false, "RWKV-4",
     "its state is a vector for each channel instead of a matrix for each head"}};

const io::TensorInfo* find_mark(const std::vector<io::TensorInfo>& tensors, const Generation& g) {
  const auto found = std::ranges::find_if(tensors, [&](const io::TensorInfo& t) {
    const bool matrix = t.shape.size() == 2 && t.shape.back() > 1;
    return t.name.find(g.mark) != std::string::npos && (matrix || !g.matrix);
  });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

bool has_rwkv_names(const std::vector<io::TensorInfo>& tensors) {
  const auto any = [&](auto fits) {
    return std::ranges::any_of(tensors,
                               [&](const io::TensorInfo& t) { return fits(without_prefix(t.name)); });
  };
  return any([](std::string_view name) { return name == "emb.weight"; }) &&
         any([](std::string_view name) { return name.starts_with("blocks.0.att."); });
}

void check_generation(const std::vector<io::TensorInfo>& tensors, const std::filesystem::path& file) {
  const bool seventh =
      std::ranges::any_of(tensors, [](const io::TensorInfo& t) { return t.name.ends_with(".att.r_k"); });
  for (const Generation& other : kOthers) {
    const bool part = other.mark.starts_with(".ffn.") || other.mark == ".qkv.";  // of models that extend x070
    const io::TensorInfo* found = seventh && !part ? nullptr : find_mark(tensors, other);
    if (found == nullptr) continue;
    throw FileError(
        "{}: expected the weights of RWKV-7 (x070), got those of {}, which have the tensor {}: {}. Fix: give an "
        "RWKV-7 file; mantissa inspect {} describes this one",
        file.string(), other.name, name_in_quotes(found->name), other.difference, file.string());
  }
}

}  // namespace mantissa::rwkv
