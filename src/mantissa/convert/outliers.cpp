#include "mantissa/convert/outliers.h"

#include <algorithm>
#include <cmath>
#include <map>

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

void add_outliers(const std::string& tensor, const std::vector<Channel>& channels, Outlier::Against against,
                  std::vector<Outlier>& all) {
  std::vector<double> sizes;
  for (const Channel& c : channels) {
    if (c.rms() > 0) sizes.push_back(c.rms());
  }
  const double typical = median(std::move(sizes));
  if (typical == 0) return;
  std::vector<Outlier> found;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const Channel& c = channels[i];
    const double ratio = c.rms() / typical;
    if (c.count < kShortestChannel || ratio < kOutlierRatio) continue;
    found.push_back({.tensor = tensor,
                     .against = against,
                     .index = i,
                     .rms = c.rms(),
                     .absmax = c.absmax,
                     .ratio = ratio,
                     .norm = std::sqrt(c.sum_squares)});
  }
  constexpr std::size_t kRare = 8;
  if (found.size() * kRare <= channels.size()) all.insert(all.end(), found.begin(), found.end());
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

/// Returns one size of all matrices, in ascending order.
std::vector<double> sorted_sizes(const std::vector<const MatrixSize*>& layers, double MatrixSize::*size) {
  std::vector<double> sizes;
  for (const MatrixSize* matrix : layers) sizes.push_back(matrix->*size);
  std::ranges::sort(sizes);
  return sizes;
}

/// Returns `size` as a multiple of the median of the others in `sorted`, which contains it; 0 if there is no
/// such median.
double ratio_to_others(double size, const std::vector<double>& sorted) {
  if (sorted.size() < 2) return 0;
  const auto place = static_cast<std::size_t>(std::ranges::lower_bound(sorted, size) - sorted.begin());
  const std::size_t middle = (sorted.size() - 2) / 2;
  const double typical = sorted[place <= middle ? middle + 1 : middle];
  return typical > 0 ? size / typical : 0;
}

}  // namespace

bool has_channels(const io::TensorInfo& tensor) {
  const auto fits = [](std::int64_t size) { return size >= kFewestChannels && size <= kMostChannels; };
  return io::scalar_of(tensor.dtype) && tensor.shape.size() == 2 && fits(tensor.shape[0]) &&
         fits(tensor.shape[1]);
}

std::vector<Outlier> channel_outliers(const std::string& tensor, const ChannelStats& stats) {
  std::vector<Outlier> all;
  add_outliers(tensor, stats.rows, Outlier::Against::rows, all);
  add_outliers(tensor, stats.columns, Outlier::Against::columns, all);
  return all;
}

std::vector<Outlier> layer_outliers(const std::vector<MatrixSize>& matrices) {
  std::map<std::string, std::vector<const MatrixSize*>> groups;
  for (const MatrixSize& matrix : matrices) {
    const std::string pattern = name_in_all_layers(matrix.tensor);
    if (!pattern.empty()) groups[pattern].push_back(&matrix);
  }
  std::vector<Outlier> all;
  for (const auto& [pattern, layers] : groups) {
    const std::vector<double> all_rms = sorted_sizes(layers, &MatrixSize::rms);
    const std::vector<double> all_absmax = sorted_sizes(layers, &MatrixSize::absmax);
    for (const MatrixSize* matrix : layers) {
      const double rms = ratio_to_others(matrix->rms, all_rms);
      const double absmax = ratio_to_others(matrix->absmax, all_absmax);
      if (rms < kOutlierRatio && absmax < kOutlierAbsmaxRatio) continue;
      all.push_back({.tensor = matrix->tensor,
                     .against = Outlier::Against::layers,
                     .rms = matrix->rms,
                     .absmax = matrix->absmax,
                     .ratio = rms >= kOutlierRatio ? rms : absmax,
                     .of_absmax = rms < kOutlierRatio});
    }
  }
  return all;
}

}  // namespace mantissa::convert
