// The functions that every template may call.
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/print.h"

namespace mantissa::chat {

namespace {

class Function : public Object {
 public:
  using Body = Value (*)(Interpreter&, Arguments&);
  Function(std::string_view name, Body body) : name_(name), body_(body) {}
  std::string_view type() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Interpreter& in, Arguments& arguments) override { return body_(in, arguments); }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override {
    throw Fault("'{}.{}' is not supported", name_, name);
  }

 private:
  std::string_view name_;
  Body body_;
};

/// joiner(separator): empty at the first call, then the separator.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) { depth = separator_.depth() + 1; }
  std::string_view type() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter& in, Arguments& arguments) override {
    const Parameters p("joiner", arguments, {});
    if (std::exchange(used_, true)) return separator_;
    return make_text(in.meter(), "");
  }

 private:
  Value separator_;
  bool used_ = false;
};

/// cycler(…): next() returns its values in turn.
class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {
    for (const Value& v : items_) depth = std::max(depth, v.depth() + 1);
  }
  std::string_view type() const override { return "Cycler"; }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override;
  Value next() {
    Value value = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return value;
  }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

class CyclerMethod : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycler> cycler, bool next) : cycler_(std::move(cycler)), next_(next) {
    depth = cycler_->depth + 1;
  }
  std::string_view type() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments& arguments) override {
    const Parameters p("cycler", arguments, {});
    if (next_) return cycler_->next();
    cycler_->reset();
    return Value();
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool next_;
};

std::optional<Value> Cycler::attribute(Interpreter&, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name != "next" && name != "reset") return std::nullopt;
  return Value(std::shared_ptr<Object>(std::make_shared<CyclerMethod>(shared_from_this(), name == "next")));
}

Value call_range(Interpreter& in, Arguments& arguments) {
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
  in.meter().allocate(96);
  const bool one = !p.given(1);
  return Value(std::shared_ptr<Object>(
      std::make_shared<Range>(one ? 0 : p.integer(0), one ? p.integer(0) : p.integer(1), p.integer(2, 1))));
}

// Calls `set` with the pairs that dict(…) and namespace(…) take: a mapping or a list of pairs, then named
// arguments.
template <class Set>
void for_pairs(std::string_view function, Interpreter& in, Arguments& arguments, Set set) {
  if (arguments.positional.size() > 1) throw Fault("{} takes one mapping and named arguments", function);
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const Dict* dict = source.dict()) {
      for (const auto& [key, value] : dict->entries) set(key, value);
    } else {
      for (const Value& pair : elements(source, in.meter())) {
        const std::vector<Value> parts = elements(pair, in.meter());
        if (parts.size() != 2) throw Fault("{} needs pairs", function);
        set(parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) set(make_text(in.meter(), name), value);
}

Value call_dict(Interpreter& in, Arguments& arguments) {
  Dict dict;
  for_pairs("dict", in, arguments,
            [&](const Value& key, const Value& value) { dict.set(key, value, in.meter()); });
  return make_dict(in.meter(), std::move(dict));
}

Value call_namespace(Interpreter& in, Arguments& arguments) {
  Value result = in.make_namespace();
  for_pairs("namespace", in, arguments, [&](const Value& key, const Value& value) {
    if (!key.text()) throw Fault("namespace needs strings as names");
    result.as<Namespace>()->set(key.text()->bytes, value);
  });
  return result;
}

Value call_raise_exception(Interpreter& in, Arguments& arguments) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  throw RaiseCalled(str(p.at(0), in.meter()));
}

Value call_strftime_now(Interpreter& in, Arguments& arguments) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  return make_text(in.meter(), format_time(p.text(0), in.now()));
}

Value call_joiner(Interpreter& in, Arguments& arguments) {
  const Parameters p("joiner", arguments, {"sep"});
  in.meter().allocate(96);
  return Value(
      std::shared_ptr<Object>(std::make_shared<Joiner>(p.given(0) ? p.at(0) : make_text(in.meter(), ", "))));
}

Value call_cycler(Interpreter& in, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) throw Fault("cycler needs values");
  in.meter().allocate(96);
  return Value(std::shared_ptr<Object>(std::make_shared<Cycler>(std::move(arguments.positional))));
}

Value call_lipsum(Interpreter&, Arguments&) {
  throw Fault("lipsum is not supported: its text is random");
}

}  // namespace

std::optional<Value> find_global(std::string_view name) {
  static constexpr std::pair<std::string_view, Function::Body> kFunctions[] = {
      {"range", call_range},         {"dict", call_dict},
      {"namespace", call_namespace}, {"raise_exception", call_raise_exception},
      {"joiner", call_joiner},       {"cycler", call_cycler},
      {"lipsum", call_lipsum},       {"strftime_now", call_strftime_now}};
  for (const auto& [function, body] : kFunctions) {
    if (function == name) return Value(std::shared_ptr<Object>(std::make_shared<Function>(function, body)));
  }
  return std::nullopt;
}

}  // namespace mantissa::chat
