// Truth, equality, order, hashes, lengths and iteration of values.
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/unicode.h"
#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

namespace {

// Integers compare exactly with floats.
std::optional<long double> exact_number(const Value& v) {
  if (const double* d = v.real()) return *d;
  if (const auto i = v.as_integer()) return static_cast<long double>(*i);
  return std::nullopt;
}

bool equal_dicts(const Dict& a, const Dict& b, Meter& meter) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.find(key, meter);
    if (!other || !equal(value, *other, meter)) return false;
  }
  return true;
}

Iterator::Next walk_text(const Value& v, Meter& meter) {
  return [v, &meter, at = std::size_t{0}]() mutable -> std::optional<Value> {
    const std::string& bytes = v.text()->bytes;
    if (at >= bytes.size()) return std::nullopt;
    const std::size_t n = unicode::size_at(bytes, at);
    at += n;
    return make_text(meter, bytes.substr(at - n, n));
  };
}

// A walk over `at(i)` for the indices of v, whose size is fixed.
template <class At>
Iterator::Next walk(const Value& v, std::size_t size, At at) {
  return [v, size, at, i = std::size_t{0}]() mutable -> std::optional<Value> {
    if (i >= size) return std::nullopt;
    return at(i++);
  };
}

}  // namespace

std::string_view type_name(const Value& v) {
  if (v.is_none()) return "NoneType";
  if (v.is_undefined()) return "Undefined";
  if (v.boolean()) return "bool";
  if (v.integer()) return "int";
  if (v.real()) return "float";
  if (v.text()) return v.text()->markup ? "Markup" : "str";
  if (v.list()) return v.list()->tuple ? "tuple" : "list";
  if (v.dict()) return "dict";
  return v.object()->type();
}

bool truth(const Value& v) {
  if (v.is_none() || v.is_undefined()) return false;
  if (const bool* b = v.boolean()) return *b;
  if (const std::int64_t* i = v.integer()) return *i != 0;
  if (const double* d = v.real()) return *d != 0;
  if (v.text()) return v.text()->length > 0;
  if (v.list()) return !v.list()->items.empty();
  if (v.dict()) return !v.dict()->entries.empty();
  return v.object()->truth();
}

bool equal(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.same_place(b)) return true;
  if (const auto x = exact_number(a)) {
    const auto y = exact_number(b);
    return y && *x == *y;
  }
  if (a.text()) {
    if (!b.text() || a.text()->bytes.size() != b.text()->bytes.size()) return false;
    meter.scan(a.text()->bytes.size());
    return a.text()->bytes == b.text()->bytes;
  }
  if (const List* x = a.list()) {
    const List* y = b.list();
    if (!y || x->tuple != y->tuple || x->items.size() != y->items.size()) return false;
    const Meter::Nested nested(meter);
    for (std::size_t i = 0; i < x->items.size(); ++i) {
      if (!equal(x->items[i], y->items[i], meter)) return false;
    }
    return true;
  }
  if (a.dict()) {
    const Meter::Nested nested(meter);
    return b.dict() && equal_dicts(*a.dict(), *b.dict(), meter);
  }
  if (const auto* x = a.as<Range>()) {
    const auto* y = b.as<Range>();
    return y && x->count == y->count &&
           (x->count == 0 || (x->start == y->start && (x->count == 1 || x->step == y->step)));
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  require_defined(a);
  require_defined(b);
  if (const auto x = exact_number(a), y = exact_number(b); x && y) return *x < *y;
  if (a.text() && b.text()) {
    meter.scan(a.text()->bytes.size());
    return a.text()->bytes < b.text()->bytes;  // the order of UTF-8 bytes is that of code points
  }
  const List* x = a.list();
  const List* y = b.list();
  if (x && y && x->tuple == y->tuple) {
    const Meter::Nested nested(meter);
    for (std::size_t i = 0; i < x->items.size() && i < y->items.size(); ++i) {
      if (!equal(x->items[i], y->items[i], meter)) return less(x->items[i], y->items[i], meter);
    }
    return x->items.size() < y->items.size();
  }
  throw Fault("'{}' and '{}' cannot be ordered", type_name(a), type_name(b));
}

std::size_t hash(const Value& v, Meter& meter) {
  meter.step();
  if (const Text* t = v.text()) {
    meter.scan(t->bytes.size());
    return std::hash<std::string_view>()(t->bytes);
  }
  if (const auto d = v.as_number()) return std::hash<double>()(*d);  // 1, 1.0 and true are one key
  if (const List* list = v.list(); list && list->tuple) {
    const Meter::Nested nested(meter);
    std::size_t h = 17;
    for (const Value& item : list->items) h = h * 31 + hash(item, meter);
    return h;
  }
  if (v.list() || v.dict()) throw Fault("unhashable type: '{}'", type_name(v));
  if (const auto* range = v.as<Range>()) return range->count;
  return std::hash<const void*>()(v.object());
}

std::optional<std::size_t> length_of(const Value& v) {
  if (v.is_undefined()) return 0;
  if (v.text()) return v.text()->length;
  if (v.list()) return v.list()->items.size();
  if (v.dict()) return v.dict()->entries.size();
  if (Object* o = v.object()) return o->length();
  return std::nullopt;
}

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.text() || v.list() || v.dict() || v.as<Range>() || v.as<DictView>() ||
         v.as<Iterator>();
}

std::shared_ptr<Iterator> iterate(const Value& v, Meter& meter) {
  const auto make = [&](Iterator::Next next, std::string_view type) {
    return std::make_shared<Iterator>(std::move(next), v.depth(), type);
  };
  if (v.is_undefined()) return make([] { return std::nullopt; }, "generator");
  if (v.text()) return make(walk_text(v, meter), "str_iterator");
  if (const List* list = v.list()) {
    return make(walk(v, list->items.size(), [list](std::size_t i) { return list->items[i]; }),
                "list_iterator");
  }
  if (const Dict* dict = v.dict()) {
    return make(walk(v, dict->entries.size(), [dict](std::size_t i) { return dict->entries[i].first; }),
                "dict_keyiterator");
  }
  if (auto* range = v.as<Range>()) {
    return make(walk(v, range->count, [range](std::size_t i) { return range->at(i); }), "range_iterator");
  }
  if (auto* view = v.as<DictView>()) {
    Meter* m = &meter;
    return make(walk(v, *view->length(), [view, m](std::size_t i) { return view->at(i, *m); }),
                "dict_itemiterator");
  }
  if (auto* iterator = v.as<Iterator>()) {
    return make([v, iterator] { return iterator->next(); }, "generator");
  }
  throw Fault("'{}' object is not iterable", type_name(v));
}

std::vector<Value> elements(const Value& v, Meter& meter) {
  if (const List* list = v.list()) {
    meter.step(list->items.size());
    meter.allocate(list->items.size() * sizeof(Value));
    return list->items;
  }
  std::vector<Value> result;
  const auto it = iterate(v, meter);
  while (auto next = it->next()) {
    meter.step();
    meter.allocate(2 * sizeof(Value));
    result.push_back(std::move(*next));
  }
  return result;
}

void require_defined(const Value& v) {
  if (v.is_undefined()) throw Fault(*v.undefined().message);
}

}  // namespace mantissa::chat
