#include "mantissa/text/chat/value.h"

#include <fmt/format.h>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

constexpr std::uint32_t kMaxNesting = 100;
constexpr std::size_t kIndexedFrom = 9;  // dicts with fewer entries are searched one by one

std::uint32_t deeper(std::uint32_t depth) {
  if (depth >= kMaxNesting) throw Fault("values are nested more than {} levels", kMaxNesting);
  return depth + 1;
}

std::uint32_t depth_around(const std::vector<Value>& items) {
  std::uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return deeper(depth);
}

Value make_sequence(Meter& meter, std::vector<Value> items, bool tuple, bool group) {
  meter.allocate(64 + items.size() * sizeof(Value));
  auto list = std::make_shared<List>();
  list->depth = depth_around(items);
  list->items = std::move(items);
  list->tuple = tuple;
  list->group = group;
  return Value(std::shared_ptr<const List>(std::move(list)));
}

}  // namespace

std::optional<std::int64_t> Value::as_integer() const {
  if (const bool* b = boolean()) return *b;
  if (const std::int64_t* i = integer()) return *i;
  return std::nullopt;
}

std::optional<double> Value::as_number() const {
  if (const double* d = real()) return *d;
  if (const auto i = as_integer()) return static_cast<double>(*i);
  return std::nullopt;
}

std::uint32_t Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth;
  if (const Object* o = object()) return o->depth;
  return 0;
}

bool Value::same_place(const Value& other) const {
  return (list() && list() == other.list()) || (dict() && dict() == other.dict()) ||
         (object() && object() == other.object()) || (text() && text() == other.text());
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  const std::size_t h = hash(key, meter);
  if (index.empty()) {
    for (const auto& [k, v] : entries) {
      if (equal(k, key, meter)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(h);
  for (auto it = begin; it != end; ++it) {
    if (equal(entries[it->second].first, key, meter)) return &entries[it->second].second;
  }
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto matches = [&](const Value& k) { return k.text() && k.text()->bytes == key; };
  if (index.empty()) {
    for (const auto& [k, v] : entries) {
      if (matches(k)) return &v;
    }
    return nullptr;
  }
  const auto [begin, end] = index.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    if (matches(entries[it->second].first)) return &entries[it->second].second;
  }
  return nullptr;
}

void Dict::set(Value key, Value value, Meter& meter) {
  meter.step();
  if (const Value* found = find(key, meter)) {
    *const_cast<Value*>(found) = std::move(value);  // an entry of this dict
    return;
  }
  meter.allocate(2 * sizeof(Value) + 48);
  const std::size_t h = hash(key, meter);
  entries.emplace_back(std::move(key), std::move(value));
  if (!index.empty()) {
    index.emplace(h, entries.size() - 1);
  } else if (entries.size() == kIndexedFrom) {
    for (std::size_t i = 0; i < entries.size(); ++i) index.emplace(hash(entries[i].first, meter), i);
  }
}

std::string Object::repr(Meter&) const {
  throw Fault("a {} cannot be printed. Fix: {}", type(), callable() ? "call it" : "add the filter 'list'");
}

Value Object::call(Interpreter&, Arguments&) {
  throw Fault("'{}' object is not callable", type());
}

std::optional<Value> Object::attribute(Interpreter&, std::string_view) {
  return std::nullopt;
}

Iterator::Iterator(Next next, std::uint32_t source_depth, std::string_view type)
    : next_(std::move(next)), type_(type) {
  depth = deeper(source_depth);
}

Range::Range(std::int64_t start_, std::int64_t stop_, std::int64_t step_)
    : start(start_), stop(stop_), step(step_) {
  constexpr std::uint64_t kLongest = 100000;  // the limit of Jinja's sandbox
  if (step == 0) throw Fault("range() arg 3 must not be zero");
  std::uint64_t n = 0;
  if (step > 0 ? start < stop : start > stop) {
    const std::uint64_t distance = step > 0
                                       ? static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start)
                                       : static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop);
    const std::uint64_t stride =
        step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
    n = (distance - 1) / stride + 1;
  }
  if (n > kLongest) throw Fault("range() has {} elements; at most {} are allowed", n, kLongest);
  count = static_cast<std::size_t>(n);
}

std::string Range::repr(Meter&) const {
  return step == 1 ? fmt::format("range({}, {})", start, stop)
                   : fmt::format("range({}, {}, {})", start, stop, step);
}

DictView::DictView(Value dict_, Kind kind_) : dict(std::move(dict_)), kind(kind_) {
  depth = deeper(dict.depth());
}

std::string_view DictView::type() const {
  return kind == Kind::items ? "dict_items" : kind == Kind::keys ? "dict_keys" : "dict_values";
}

bool DictView::truth() const {
  return !dict.dict()->entries.empty();
}

std::optional<std::size_t> DictView::length() {
  return dict.dict()->entries.size();
}

Value DictView::at(std::size_t i, Meter& meter) const {
  const auto& [key, value] = dict.dict()->entries[i];
  if (kind == Kind::items) return make_tuple(meter, {key, value});
  return kind == Kind::keys ? key : value;
}

std::optional<Value> Namespace::attribute(Interpreter&, std::string_view name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(std::string name, Value value) {
  if (name.starts_with('_')) {
    throw Fault("a namespace cannot have the attribute '{}'. Fix: use a name without a leading underscore",
                name);
  }
  depth = std::max(depth, deeper(value.depth()));
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::move(name), std::move(value));
}

Value make_text(Meter& meter, std::string bytes, bool markup) {
  meter.allocate(sizeof(Text) + 32 + bytes.size());
  meter.scan(bytes.size());
  auto text = std::make_shared<Text>();
  text->length = unicode::length(bytes);
  text->bytes = std::move(bytes);
  text->markup = markup;
  return Value(std::shared_ptr<const Text>(std::move(text)));
}

Value make_list(Meter& meter, std::vector<Value> items) {
  return make_sequence(meter, std::move(items), false, false);
}

Value make_tuple(Meter& meter, std::vector<Value> items, bool group) {
  return make_sequence(meter, std::move(items), true, group);
}

Value make_dict(Meter& meter, Dict dict) {
  meter.allocate(128);
  auto shared = std::make_shared<Dict>(std::move(dict));
  std::uint32_t depth = 0;
  for (const auto& [key, value] : shared->entries) depth = std::max({depth, key.depth(), value.depth()});
  shared->depth = deeper(depth);
  return Value(std::shared_ptr<const Dict>(std::move(shared)));
}

Value make_undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

Value make_iterator(Iterator::Next next, std::uint32_t source_depth, std::string_view type) {
  return Value(std::shared_ptr<Object>(std::make_shared<Iterator>(std::move(next), source_depth, type)));
}

Value from_json(const nlohmann::ordered_json& json, Meter& meter) {
  using Type = nlohmann::ordered_json::value_t;
  const Meter::Nested nested(meter);
  meter.step();
  switch (json.type()) {
    case Type::boolean:
      return Value(json.get<bool>());
    case Type::number_integer:
      return Value(json.get<std::int64_t>());
    case Type::number_unsigned:
      if (json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
        throw Fault("the integer {} does not fit 64 bits with a sign. Fix: write it as a string",
                    json.dump());
      }
      return Value(json.get<std::int64_t>());
    case Type::number_float:
      return Value(json.get<double>());
    case Type::string: {
      const auto& bytes = json.get_ref<const std::string&>();
      if (!unicode::valid(bytes))
        throw Fault("a string of the conversation is not valid UTF-8. Fix: re-encode it");
      return make_text(meter, bytes);
    }
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, meter));
      return make_list(meter, std::move(items));
    }
    case Type::object: {
      Dict dict;
      for (const auto& [key, item] : json.items()) {
        if (!unicode::valid(key))
          throw Fault("a key of the conversation is not valid UTF-8. Fix: re-encode it");
        dict.set(make_text(meter, key), from_json(item, meter), meter);
      }
      return make_dict(meter, std::move(dict));
    }
    default:
      return Value();
  }
}

}  // namespace mantissa::chat
