#include "mantissa/text/tokenizer/split.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::tokenizer {
namespace {

// Joins neighbours: joins(segment, previous was a delimiter) decides whether a segment extends the one before
// it.
template <class Joins>
std::vector<Segment> joined(const std::vector<Segment>& segments, const Joins& joins) {
  std::vector<Segment> result;
  bool previous = false;
  for (const Segment& segment : segments) {
    if (joins(segment.delimiter, previous) && !result.empty()) {
      result.back().start = std::min(result.back().start, segment.start);
      result.back().end = std::max(result.back().end, segment.end);
    } else {
      result.push_back(segment);
    }
    previous = segment.delimiter;
  }
  return result;
}

}  // namespace

Behavior read_behavior(const JsonView& json) {
  const std::string name = json.text();
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  json.fail(fmt::format("\"{}\" is not a behavior of a split", name));
}

void emit_segments(const Piece& piece, std::vector<Segment> segments, Behavior behavior, PieceSink sink) {
  const auto first_delimiter = [](bool now, bool before) { return now && !before; };
  switch (behavior) {
    case Behavior::kIsolated:
      break;
    case Behavior::kRemoved:
      std::erase_if(segments, [](const Segment& segment) { return segment.delimiter; });
      break;
    case Behavior::kContiguous:
      segments = joined(segments, [](bool now, bool before) { return now == before; });
      break;
    case Behavior::kMergedWithPrevious:
      segments = joined(segments, first_delimiter);
      break;
    case Behavior::kMergedWithNext:
      std::reverse(segments.begin(), segments.end());
      segments = joined(segments, first_delimiter);
      std::reverse(segments.begin(), segments.end());
      break;
  }
  for (const Segment& segment : segments) {
    if (segment.start != segment.end) sink(piece.part(segment.start, segment.end));
  }
}

}  // namespace mantissa::tokenizer
