// The variable `loop`: where an iteration stands.
#pragma once

#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

class LoopState : public Object, public std::enable_shared_from_this<LoopState> {
 public:
  /// `length` is null if the number of elements is unknown before they are visited.
  LoopState(std::shared_ptr<Iterator> iterator, std::optional<std::size_t> length, Meter& meter);

  /// Moves to the next element. Returns false at the end.
  bool advance();
  const Value& current() const { return current_; }
  /// Forgets what loop.changed() kept, which may refer to the loop itself.
  void finish();

  std::string_view type() const override { return "LoopContext"; }
  std::string repr(Meter& meter) const override;
  bool truth() const override { return true; }
  std::optional<std::size_t> length() override;
  std::optional<Value> attribute(Interpreter& in, std::string_view name) override;
  /// Implements loop.cycle and loop.changed.
  Value cycle(Arguments& arguments) const;
  Value changed(Arguments& arguments);

 private:
  bool peek();  // looks one element ahead; returns false at the end

  std::shared_ptr<Iterator> iterator_;
  std::optional<std::size_t> length_;
  Meter& meter_;
  std::int64_t index0_ = -1;
  Value current_ = make_undefined("there is no previous item");
  Value before_;
  std::optional<Value> after_;
  std::optional<std::vector<Value>> last_changed_;
  bool finished_ = false;
};

}  // namespace mantissa::chat
