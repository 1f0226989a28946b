#include "mantissa/files/convert/shared_storages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "mantissa/core/base/printable.h"

namespace mantissa::convert {

void find_shared_storages(const io::WeightFiles& files, std::vector<InspectedTensor>& tensors) {
  const io::TensorSource* const source = files.source();
  if (source == nullptr) return;
  std::map<std::pair<std::filesystem::path, std::uint64_t>, const io::TensorInfo*> first_of;
  for (InspectedTensor& t : tensors) {
    const auto view = source->view_of(t.tensor);
    if (!view || t.tensor.count() == 0) continue;  // elements of an empty tensor are nowhere
    t.place.strides = view->strides;
    const auto [found, is_new] = first_of.try_emplace({source->path_of(t.tensor), view->storage}, &t.tensor);
    if (is_new) continue;
    const io::TensorInfo& first = *found->second;
    t.place.shares_with = first.name;
    t.place.same_elements =
        first.dtype == t.tensor.dtype && first.shape == t.tensor.shape && source->view_of(first) == view;
  }
}

std::string place_text(const TensorPlace& place) {
  std::string text;
  if (!place.shares_with.empty())
    text = fmt::format("{} {}", place.same_elements ? "the same elements as" : "shares the storage of",
                       printable(place.shares_with));
  if (place.strides.empty()) return text;
  return text + fmt::format("{}strides [{}]", text.empty() ? "" : "; ", fmt::join(place.strides, ", "));
}

}  // namespace mantissa::convert
