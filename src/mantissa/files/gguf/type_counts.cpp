#include "mantissa/files/gguf/type_counts.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::gguf {

std::vector<TypeCount> type_counts(const GgufFile& file) {
  std::vector<TypeCount> counts;
  for (const FileTensor& tensor : file.tensors()) {
    auto found = std::ranges::find(counts, tensor.type, &TypeCount::type);
    if (found == counts.end()) found = counts.insert(counts.end(), {tensor.type});
    ++found->tensors;
    found->values += tensor.count();
    found->bytes += tensor.bytes;
  }
  std::ranges::stable_sort(counts, std::ranges::greater(), &TypeCount::values);
  return counts;
}

const TypeTraits* narrowest_type(const GgufFile& file) {
  const auto found =
      std::ranges::min_element(file.tensors(), {}, [](const FileTensor& t) { return t.type->bits(); });
  return found == file.tensors().end() ? nullptr : found->type;
}

std::string types_text(const std::vector<TypeCount>& counts) {
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == counts.size() ? " and " : ", ";
    const char* noun = i > 0 ? "" : counts[i].tensors == 1 ? "tensor " : "tensors ";
    text += fmt::format("{}{} {}of {}", before, counts[i].tensors, noun, counts[i].type->name);
  }
  return text;
}

}  // namespace mantissa::gguf
