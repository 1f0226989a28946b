// Splitting a piece at delimiters.
#pragma once

#include <vector>

#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/piece.h"

namespace mantissa::tokenizer {

/// Receives the parts of a piece, in order.
using PieceSink = FunctionRef<void(const Piece&)>;

/// What happens to delimiters.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

Behavior read_behavior(const JsonView& json);

/// A part of a text: a delimiter or what is between two.
struct Segment {
  std::size_t start, end;
  bool delimiter;
};

/// Passes the parts of `piece` to `sink`. `segments` cover it in order. Empty parts are dropped.
void emit_segments(const Piece& piece, std::vector<Segment> segments, Behavior behavior, PieceSink sink);

/// Collects segments from the delimiters, in order.
class Segments {
 public:
  explicit Segments(std::size_t size) : size_(size) {}
  void delimiter(std::size_t start, std::size_t end) {
    if (done_ != start) list_.push_back({done_, start, false});
    list_.push_back({start, end, true});
    done_ = end;
  }
  std::vector<Segment> finish(bool invert) {
    if (done_ != size_) list_.push_back({done_, size_, false});
    if (invert) {
      for (Segment& segment : list_) segment.delimiter = !segment.delimiter;
    }
    return std::move(list_);
  }

 private:
  std::size_t size_, done_ = 0;
  std::vector<Segment> list_;
};

}  // namespace mantissa::tokenizer
