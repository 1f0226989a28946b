#include "mantissa/text/chat/loop.h"

#include <fmt/format.h>

#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/error.h"

namespace mantissa::chat {

namespace {

// loop.cycle or loop.changed.
class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<LoopState> loop, bool cycle) : loop_(std::move(loop)), cycle_(cycle) {
    depth = loop_->depth + 1;
  }
  std::string_view type() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override {
    return cycle_ ? loop_->cycle(arguments) : loop_->changed(arguments);
  }

 private:
  std::shared_ptr<LoopState> loop_;
  bool cycle_;
};

}  // namespace

LoopState::LoopState(std::shared_ptr<Iterator> iterator, std::optional<std::size_t> length, Meter& meter)
    : iterator_(std::move(iterator)), length_(length), meter_(meter) {
  depth = iterator_->depth + 1;
}

bool LoopState::peek() {
  if (!after_) after_ = iterator_->next();
  return after_.has_value();
}

bool LoopState::advance() {
  if (!peek()) return false;
  before_ = std::move(current_);
  current_ = std::move(*after_);
  after_.reset();
  ++index0_;
  return true;
}

std::optional<std::size_t> LoopState::length() {
  if (!length_) {
    std::vector<Value> rest;
    while (auto next = iterator_->next()) {
      meter_.allocate(2 * sizeof(Value));
      rest.push_back(std::move(*next));
    }
    length_ = static_cast<std::size_t>(index0_ + 1) + (after_ ? 1 : 0) + rest.size();
    const std::uint32_t source_depth = iterator_->depth - 1;
    iterator_ = std::make_shared<Iterator>(
        [rest = std::move(rest), i = std::size_t{0}]() mutable {
          return i < rest.size() ? std::optional<Value>(rest[i++]) : std::nullopt;
        },
        source_depth);
  }
  return length_;
}

std::string LoopState::repr(Meter&) const {
  return fmt::format("<LoopContext {}/{}>", index0_ + 1, *const_cast<LoopState*>(this)->length());
}

std::optional<Value> LoopState::attribute(Interpreter&, std::string_view name) {
  const auto whole = [](std::int64_t n) { return Value(n); };
  if (name == "index") return whole(index0_ + 1);
  if (name == "index0") return whole(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek());
  if (name == "length") return whole(static_cast<std::int64_t>(*length()));
  if (name == "revindex") return whole(static_cast<std::int64_t>(*length()) - index0_);
  if (name == "revindex0") return whole(static_cast<std::int64_t>(*length()) - index0_ - 1);
  if (name == "depth") return whole(1);
  if (name == "depth0") return whole(0);
  if (name == "previtem") return index0_ == 0 ? make_undefined("there is no previous item") : before_;
  if (name == "nextitem") return peek() ? *after_ : make_undefined("there is no next item");
  if (name == "cycle" || name == "changed") {
    return Value(std::shared_ptr<Object>(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle")));
  }
  return std::nullopt;
}

Value LoopState::cycle(Arguments& arguments) const {
  if (arguments.positional.empty()) throw Fault("loop.cycle needs an argument");
  return arguments.positional[static_cast<std::size_t>(index0_) % arguments.positional.size()];
}

void LoopState::finish() {
  finished_ = true;
  last_changed_.reset();
}

Value LoopState::changed(Arguments& arguments) {
  if (finished_) throw Fault("loop.changed works inside of its loop only");
  const auto same = [&] {
    if (!last_changed_ || last_changed_->size() != arguments.positional.size()) return false;
    for (std::size_t i = 0; i < last_changed_->size(); ++i) {
      if (!equal((*last_changed_)[i], arguments.positional[i], meter_)) return false;
    }
    return true;
  };
  if (same()) return Value(false);
  for (const Value& v : arguments.positional) depth = std::max(depth, v.depth() + 1);
  last_changed_ = arguments.positional;
  return Value(true);
}

}  // namespace mantissa::chat
