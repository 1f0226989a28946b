#include "mantissa/text/chat/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string name) : self_(std::move(self)), name_(std::move(name)) {
    depth = self_.depth() + 1;
  }
  std::string_view type() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& in, Arguments& arguments) override {
    return self_.text() ? call_text_method(in, self_, name_, arguments)
                        : call_container_method(in, self_, name_, arguments);
  }

 private:
  Value self_;
  std::string name_;
};

// The methods of Python's types, each list between spaces.
struct Methods {
  std::string_view supported, forbidden, unsupported;
};

constexpr Methods kText = {
    " capitalize casefold center count endswith expandtabs find format index isalnum isalpha isascii "
    "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower "
    "lstrip partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split "
    "splitlines startswith strip swapcase title upper zfill ",
    "", " encode format_map maketrans translate "};
constexpr Methods kList = {" copy count index ", " append clear extend insert pop remove reverse sort ", ""};
constexpr Methods kTuple = {" count index ", "", ""};
constexpr Methods kDict = {" copy get items keys values ", " clear pop popitem setdefault update ",
                           " fromkeys "};
constexpr Methods kInteger = {
    "", "",
    " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real to_bytes "};
constexpr Methods kReal = {"", "", " as_integer_ratio conjugate fromhex hex imag is_integer real "};
constexpr Methods kRange = {" count index ", "", " start stop step "};
constexpr Methods kNone = {"", "", ""};

bool lists(std::string_view words, std::string_view word) {
  return word.find(' ') == std::string_view::npos &&
         words.find(fmt::format(" {} ", word)) != std::string_view::npos;
}

const Methods& methods_of(const Value& v) {
  if (v.text()) return kText;
  if (v.list()) return v.list()->tuple ? kTuple : kList;
  if (v.dict()) return kDict;
  if (v.real()) return kReal;
  if (v.as_integer()) return kInteger;
  if (v.as<Range>()) return kRange;
  return kNone;
}

Value missing(const Value& object, const Value& key, Meter& meter) {
  const std::string_view type = object.is_none() ? "None" : type_name(object);
  if (!key.text()) return make_undefined(fmt::format("{} object has no element {}", type, repr(key, meter)));
  const std::string_view name = key.text()->bytes;
  return make_undefined(
      fmt::format("'{}{}' has no attribute '{}'", type, object.is_none() ? "" : " object", name));
}

Value forbidden(const Value& object, std::string_view name) {
  return make_undefined(
      fmt::format("'{}' of '{}' is not allowed: templates cannot change values in place. Fix: build a new "
                  "value, for example with '+'",
                  name, type_name(object)));
}

// The element of a str, list, tuple or range. Null if the index has another type or is out of range.
std::optional<Value> element(const Value& object, const Value& key, Meter& meter) {
  const auto size = length_of(object);
  const auto index = key.as_integer();
  if (!size || !index) return std::nullopt;
  std::int64_t i = *index;
  if (i < 0) i += static_cast<std::int64_t>(*size);
  if (i < 0 || i >= static_cast<std::int64_t>(*size)) return std::nullopt;
  const auto at = static_cast<std::size_t>(i);
  if (const List* list = object.list()) return list->items[at];
  if (const Text* t = object.text()) {
    if (t->ascii()) return make_text(meter, std::string(1, t->bytes[at]));
    meter.scan(t->bytes.size());
    const std::size_t offset = unicode::offset(t->bytes, at);
    return make_text(meter, t->bytes.substr(offset, unicode::size_at(t->bytes, offset)));
  }
  if (const auto* range = object.as<Range>()) return range->at(at);
  return std::nullopt;
}

std::optional<Value> subscript(const Value& object, const Value& key, Meter& meter) {
  if (const Dict* dict = object.dict()) {
    if (key.dict() || (key.list() && !key.list()->tuple)) return std::nullopt;  // no key is of these types
    const Value* found = dict->find(key, meter);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  return element(object, key, meter);
}

std::optional<Value> python_attribute(Interpreter& in, const Value& object, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) {
    return make_undefined(fmt::format("access to '{}' of '{}' is unsafe", name, type_name(object)));
  }
  if (Object* o = object.object()) {
    if (auto value = o->attribute(in, name)) return value;
  }
  if (const List* list = object.list(); list && list->group) {
    if (name == "grouper") return list->items[0];
    if (name == "list") return list->items[1];
  }
  return find_method(object, name, in.meter());
}

struct SliceBounds {
  std::int64_t start, step;
  std::size_t count;
};

SliceBounds bounds_of(const Value& start, const Value& stop, const Value& step, std::size_t size) {
  for (const Value* part : {&start, &stop, &step}) {
    require_defined(*part);
    if (!part->is_none() && !part->as_integer()) {
      throw Fault("a slice needs integers or none, not '{}'", type_name(*part));
    }
  }
  const auto index = [](const Value& v, std::int64_t preset) { return v.as_integer().value_or(preset); };
  const auto n = static_cast<std::int64_t>(size);
  const std::int64_t by = index(step, 1);
  if (by == 0) throw Fault("the step of a slice cannot be 0");
  const auto clamp = [&](const Value& v, std::int64_t preset) {
    std::int64_t i = index(v, preset);
    if (v.is_none()) return preset;
    if (i < 0) i = i < -n ? -1 : i + n;
    return by > 0 ? std::clamp<std::int64_t>(i, 0, n) : std::clamp<std::int64_t>(i, -1, n - 1);
  };
  const std::int64_t from = clamp(start, by > 0 ? 0 : n - 1);
  const std::int64_t to = clamp(stop, by > 0 ? n : -1);
  const std::int64_t distance = by > 0 ? to - from : from - to;
  if (distance <= 0) return {from, by, 0};
  const std::uint64_t stride = by > 0 ? static_cast<std::uint64_t>(by) : 0 - static_cast<std::uint64_t>(by);
  return {from, by, static_cast<std::size_t>((static_cast<std::uint64_t>(distance) - 1) / stride + 1)};
}

}  // namespace

std::optional<Value> find_method(const Value& object, std::string_view name, Meter& meter) {
  const Methods& methods = methods_of(object);
  if (lists(methods.supported, name)) {
    meter.allocate(96);
    return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>(object, std::string(name))));
  }
  if (lists(methods.forbidden, name)) return forbidden(object, name);
  if (lists(methods.unsupported, name)) {
    throw Fault("'{}' of '{}' is not supported. Fix: rewrite it with the methods of docs/chat.md", name,
                type_name(object));
  }
  return std::nullopt;
}

Value get_attribute(Interpreter& in, const Value& object, const Value& name) {
  require_defined(object);
  if (auto value = python_attribute(in, object, name.text()->bytes)) return *value;
  if (auto value = subscript(object, name, in.meter())) return *value;
  return missing(object, name, in.meter());
}

Value get_item(Interpreter& in, const Value& object, const Value& key) {
  require_defined(object);
  if (auto value = subscript(object, key, in.meter())) return *value;
  if (key.text()) {
    if (auto value = python_attribute(in, object, key.text()->bytes)) return *value;
  }
  return missing(object, key, in.meter());
}

Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step, Meter& meter) {
  require_defined(object);
  if (!object.text() && !object.list() && !object.as<Range>()) {
    throw Fault("'{}' cannot be sliced", type_name(object));
  }
  const SliceBounds b = bounds_of(start, stop, step, *length_of(object));
  const auto index = [&](std::size_t i) {
    return static_cast<std::size_t>(b.start + static_cast<std::int64_t>(i) * b.step);
  };
  if (const Text* t = object.text()) {
    meter.allocate(t->bytes.size());
    meter.scan(t->bytes.size());
    if (b.count == 0) return make_text(meter, "", t->markup);
    if (b.step == 1) {
      const std::size_t from = t->ascii() ? index(0) : unicode::offset(t->bytes, index(0));
      const std::string_view rest = std::string_view(t->bytes).substr(from);
      return make_text(meter,
                       std::string(rest.substr(0, t->ascii() ? b.count : unicode::offset(rest, b.count))),
                       t->markup);
    }
    const std::vector<char32_t> points = unicode::code_points(t->bytes);
    meter.allocate(4 * points.size());
    std::string out;
    for (std::size_t i = 0; i < b.count; ++i) unicode::append(out, points[index(i)]);
    return make_text(meter, std::move(out), t->markup);
  }
  meter.step(b.count);
  if (const List* list = object.list()) {
    meter.allocate(b.count * sizeof(Value));
    std::vector<Value> items;
    items.reserve(b.count);
    for (std::size_t i = 0; i < b.count; ++i) items.push_back(list->items[index(i)]);
    return list->tuple ? make_tuple(meter, std::move(items)) : make_list(meter, std::move(items));
  }
  const auto* range = object.as<Range>();
  const std::int64_t from = range->start + b.start * range->step;
  std::int64_t by = 0;
  if (__builtin_mul_overflow(range->step, b.step, &by)) by = range->step;
  const auto count = static_cast<std::int64_t>(b.count);
  return Value(std::shared_ptr<Object>(std::make_shared<Range>(from, from + count * by, by)));
}

}  // namespace mantissa::chat
