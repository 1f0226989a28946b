#include "mantissa/files/convert/outliers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

namespace mantissa::convert {
namespace {

constexpr std::int64_t kFewestChannels = 8;     // of which a median is typical
constexpr std::uint64_t kShortestChannel = 16;  // elements; the RMS of fewer varies by chance

/// Returns the median, or 0 without values. The lower one of two.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Adds the channels of at least `shortest` values whose RMS is `least` times the median, unless they are
/// many. Returns the ones added.
std::span<Outlier> add_outliers(const std::string& tensor, const std::vector<Channel>& channels,
                                Outlier::Against against, std::uint64_t shortest, double least,
                                std::vector<Outlier>& all) {
  std::vector<double> sizes;
  for (const Channel& c : channels) {
    if (c.rms() > 0) sizes.push_back(c.rms());
  }
  const double typical = median(std::move(sizes));
  if (typical == 0) return {};
  std::vector<Outlier> found;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const Channel& c = channels[i];
    const double ratio = c.rms() / typical;
    if (c.count < shortest || ratio < least) continue;
    found.push_back({.tensor = tensor,
                     .against = against,
                     .index = i,
                     .rms = c.rms(),
                     .absmax = c.absmax,
                     .ratio = ratio,
                     .norm = std::sqrt(c.sum_squares)});
  }
  constexpr std::size_t kRare = 8;
  if (found.size() * kRare > channels.size()) return {};
  all.insert(all.end(), found.begin(), found.end());
  return std::span(all).last(found.size());
}

/// Returns the name with "*" in place of numbers between dots, or "" if there are none.
std::string name_in_all_layers(const std::string& name) {
  std::string pattern;
  bool layered = false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string word = name.substr(at, end - at);
    const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
    layered = layered || number;
    pattern += (at == 0 ? "" : ".") + (number ? "*" : word);
    at = end + 1;
  }
  return layered ? pattern : "";
}

/// The sizes of one tensor in all layers, in ascending order.
class Sizes {
 public:
  Sizes(const std::vector<const TensorSize*>& layers, double TensorSize::*size) {
    for (const TensorSize* tensor : layers) sorted_.push_back(tensor->*size);
    std::ranges::sort(sorted_);
  }

  /// Returns `size` as a multiple of the median of the others: of two in the middle the one that is nearer to
  /// it, so that half of the layers cannot make outliers of the rest. 1 if there are no others.
  double ratio(double size) const {
    if (sorted_.size() < 2) return 1;
    const auto place = static_cast<std::size_t>(std::ranges::lower_bound(sorted_, size) - sorted_.begin());
    const auto other = [&](std::size_t i) { return sorted_[i < place ? i : i + 1]; };
    const std::size_t others = sorted_.size() - 1;
    const double low = other((others - 1) / 2), high = other(others / 2);
    const double typical = size > high ? high : size < low ? low : size;
    return typical > 0 ? size / typical : 1;
  }

 private:
  std::vector<double> sorted_;
};

bool is_outlier(const Outlier& o, std::size_t layers) {
  constexpr std::size_t kFewest = 3;  // layers of which one can be the small one
  if (o.rms == 0) return o.ratio == 0;
  if (o.ratio < 1) return layers >= kFewest && o.ratio * kOutlierAbsmaxRatio <= 1;
  return o.ratio >= (o.of_absmax ? kOutlierAbsmaxRatio : kOutlierRatio);
}

}  // namespace

bool has_channels(const io::TensorInfo& tensor) {
  const auto fits = [](std::int64_t size) { return size >= kFewestChannels && size <= kMostChannels; };
  return io::scalar_of(tensor.dtype) && tensor.shape.size() == 2 && fits(tensor.shape[0]) &&
         fits(tensor.shape[1]);
}

std::vector<Outlier> channel_outliers(const std::string& tensor, const ChannelStats& stats) {
  std::vector<Outlier> all;
  add_outliers(tensor, stats.rows, Outlier::Against::rows, kShortestChannel, kOutlierRatio, all);
  add_outliers(tensor, stats.columns, Outlier::Against::columns, kShortestChannel, kOutlierRatio, all);
  return all;
}

std::vector<Outlier> element_outliers(const std::string& tensor, const std::vector<Channel>& elements) {
  std::vector<Outlier> all;
  for (Outlier& o : add_outliers(tensor, elements, Outlier::Against::elements, 1, kOutlierAbsmaxRatio, all))
    o.of_absmax = true;
  return all;
}

std::vector<Outlier> layer_outliers(const std::vector<TensorSize>& tensors) {
  std::map<std::string, std::vector<const TensorSize*>> groups;
  for (const TensorSize& tensor : tensors) {
    const std::string pattern = name_in_all_layers(tensor.tensor);
    if (!pattern.empty()) groups[pattern].push_back(&tensor);
  }
  std::vector<Outlier> all;
  for (const auto& [pattern, layers] : groups) {
    const Sizes rms(layers, &TensorSize::rms), absmax(layers, &TensorSize::absmax);
    for (const TensorSize* tensor : layers) {
      Outlier o{.tensor = tensor->tensor,
                .against = Outlier::Against::layers,
                .rms = tensor->rms,
                .absmax = tensor->absmax,
                .ratio = rms.ratio(tensor->rms)};
      if (!is_outlier(o, layers.size()) && o.ratio >= 1) o.ratio = absmax.ratio(o.absmax), o.of_absmax = true;
      if (is_outlier(o, layers.size())) all.push_back(std::move(o));
    }
  }
  return all;
}

}  // namespace mantissa::convert
