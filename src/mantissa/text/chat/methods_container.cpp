// The methods of lists, tuples, ranges and dicts.

#include "mantissa/text/chat/access.h"
#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/interpreter.h"

namespace mantissa::chat {

namespace {

Value call_sequence_method(Interpreter& in, const Value& sequence, std::string_view name,
                           Arguments& arguments) {
  if (name == "copy") {
    const Parameters p(name, arguments, {});
    return sequence;
  }
  const Parameters p(name, arguments, {"value", "start", "stop"}, 1);
  const std::vector<Value> items = elements(sequence, in.meter());
  if (name == "count") {
    if (p.given(1)) throw Fault("count takes one argument");
    std::int64_t n = 0;
    for (const Value& item : items) n += equal(item, p.at(0), in.meter());
    return Value(n);
  }
  const auto size = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t i, std::int64_t preset) {
    const std::int64_t k = p.integer(i, preset);
    return k < 0 ? (k < -size ? 0 : k + size) : std::min(k, size);
  };
  for (std::int64_t i = bound(1, 0); i < bound(2, size); ++i) {
    if (equal(items[static_cast<std::size_t>(i)], p.at(0), in.meter())) return Value(i);
  }
  throw Fault("index: the value is not in the list");
}

Value call_dict_method(Interpreter& in, const Value& dict, std::string_view name, Arguments& arguments) {
  if (name == "get") {
    if (!arguments.named.empty()) throw Fault("get takes no named arguments");
    const Parameters p(name, arguments, {"key", "default"}, 1);
    const Value* found = dict.dict()->find(p.at(0), in.meter());
    return found ? *found : p.given(1) ? p.at(1) : Value();
  }
  const Parameters p(name, arguments, {});
  if (name == "copy") return dict;
  const DictView::Kind kind = name == "items"  ? DictView::Kind::items
                              : name == "keys" ? DictView::Kind::keys
                                               : DictView::Kind::values;
  return Value(std::shared_ptr<Object>(std::make_shared<DictView>(dict, kind)));
}

}  // namespace

Value call_container_method(Interpreter& in, const Value& container, std::string_view name,
                            Arguments& arguments) {
  in.meter().step();
  in.meter().allocate(96);
  return container.dict() ? call_dict_method(in, container, name, arguments)
                          : call_sequence_method(in, container, name, arguments);
}

}  // namespace mantissa::chat
