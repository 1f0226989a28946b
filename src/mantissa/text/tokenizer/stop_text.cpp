#include "mantissa/text/tokenizer/stop_text.h"

#include <algorithm>
#include <utility>

#include "mantissa/core/base/error.h"

namespace mantissa::tokenizer {

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) throw ConfigError("--stop: a stop string is empty; give at least one character");
  }
}

std::string StopText::push(std::string_view part) {
  if (stopped()) return {};
  held_ += part;
  // The first one in the text; of several at one place any, since all are left out.
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at >= first) continue;
    first = at;
    found_ = stop;
  }
  if (first != std::string::npos) {
    std::string text = held_.substr(0, first);
    held_.clear();
    return text;
  }
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    std::size_t length = std::min(stop.size() - 1, held_.size());
    while (length > keep && !std::string_view(held_).ends_with(std::string_view(stop).substr(0, length)))
      --length;
    keep = std::max(keep, length);
  }
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, text.size());
  return text;
}

std::string StopText::finish() {
  return std::exchange(held_, {});
}

}  // namespace mantissa::tokenizer
