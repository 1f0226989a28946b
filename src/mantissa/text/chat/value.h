// The values of a template: Python's, as far as templates see them. Values are immutable, except for some
// objects.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "mantissa/text/chat/meter.h"

namespace mantissa::chat {

struct Text;
struct List;
struct Dict;
class Object;

/// The absence of a value. It prints as nothing; other uses fail with the message.
struct Undefined {
  std::shared_ptr<const std::string> message;
};

/// One Python value. The default is None.
class Value {
 public:
  Value() = default;
  explicit Value(bool b) : data_(b) {}
  explicit Value(std::int64_t i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(std::shared_ptr<const Text> t) : data_(std::move(t)) {}
  explicit Value(std::shared_ptr<const List> l) : data_(std::move(l)) {}
  explicit Value(std::shared_ptr<const Dict> d) : data_(std::move(d)) {}
  explicit Value(std::shared_ptr<Object> o) : data_(std::move(o)) {}
  explicit Value(Undefined u) : data_(std::move(u)) {}

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }

  // Each returns the content, or null if the value is of another type.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const Text* text() const { return pointer<const Text>(); }
  const List* list() const { return pointer<const List>(); }  // a list or a tuple
  const Dict* dict() const { return pointer<const Dict>(); }
  Object* object() const { return pointer<Object>(); }
  /// Returns the object if it is of type T, else null.
  template <class T>
  T* as() const {
    return dynamic_cast<T*>(object());
  }

  /// Returns the integer of an int or a bool, as Python's operators see it.
  std::optional<std::int64_t> as_integer() const;
  /// Returns the number of an int, a bool or a float.
  std::optional<double> as_number() const;
  /// Returns the nesting depth: 0 for a plain value.
  std::uint32_t depth() const;
  /// Returns true if both are the same list, dict, text or object.
  bool same_place(const Value& other) const;

 private:
  template <class T>
  T* pointer() const {
    const auto* p = std::get_if<std::shared_ptr<T>>(&data_);
    return p ? p->get() : nullptr;
  }
  std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Object>, Undefined>
      data_;
};

/// A string: valid UTF-8.
struct Text {
  std::string bytes;
  std::size_t length = 0;  // in code points
  bool markup = false;     // the result of `safe` or `escape`
  bool ascii() const { return length == bytes.size(); }
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  bool group = false;  // a tuple of groupby, with the attributes grouper and list
  std::uint32_t depth = 1;
};

/// A dict in order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<std::size_t, std::size_t> index;  // hash to entry, if there are many
  std::uint32_t depth = 1;

  /// Returns the value of `key`, or null. Throws a Fault if the key cannot be hashed.
  const Value* find(const Value& key, Meter& meter) const;
  const Value* find(std::string_view key) const;
  /// Inserts or replaces. A replaced entry keeps its place and key.
  void set(Value key, Value value, Meter& meter);
};

class Interpreter;
struct Arguments;

/// A value with an identity: a function, an iterator, a namespace, …
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  /// Returns the name of its Python type.
  virtual std::string_view type() const = 0;
  /// Throws a Fault where Python would print an address.
  virtual std::string repr(Meter& meter) const;
  virtual bool truth() const { return true; }
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& in, Arguments& arguments);
  virtual std::optional<Value> attribute(Interpreter& in, std::string_view name);
  /// Returns the number of elements, or null if it has no length.
  virtual std::optional<std::size_t> length() { return std::nullopt; }
  std::uint32_t depth = 1;
};

/// A single pass over values.
class Iterator : public Object {
 public:
  using Next = std::function<std::optional<Value>()>;
  Iterator(Next next, std::uint32_t source_depth, std::string_view type = "generator");
  std::optional<Value> next() { return next_(); }
  std::string_view type() const override { return type_; }

 private:
  Next next_;
  std::string_view type_;
};

/// range(start, stop, step).
class Range : public Object {
 public:
  Range(std::int64_t start, std::int64_t stop, std::int64_t step);
  std::string_view type() const override { return "range"; }
  std::string repr(Meter& meter) const override;
  bool truth() const override { return count > 0; }
  std::optional<std::size_t> length() override { return count; }
  Value at(std::size_t i) const { return Value(start + static_cast<std::int64_t>(i) * step); }
  std::int64_t start, stop, step;
  std::size_t count;
};

/// dict.items(), dict.keys() or dict.values().
class DictView : public Object {
 public:
  enum class Kind { items, keys, values };
  DictView(Value dict, Kind kind);
  std::string_view type() const override;
  std::string repr(Meter& meter) const override;
  bool truth() const override;
  std::optional<std::size_t> length() override;
  Value at(std::size_t i, Meter& meter) const;
  Value dict;
  Kind kind;
};

/// namespace(…): attributes that templates assign.
class Namespace : public Object {
 public:
  std::string_view type() const override { return "Namespace"; }
  std::string repr(Meter& meter) const override;
  std::optional<Value> attribute(Interpreter& in, std::string_view name) override;
  /// Sets an attribute. Throws a Fault if the name begins with an underscore.
  void set(std::string name, Value value);
  std::vector<std::pair<std::string, Value>> attributes;
};

// ---- constructors; each charges the memory ----

Value make_text(Meter& meter, std::string bytes, bool markup = false);
Value make_list(Meter& meter, std::vector<Value> items);
Value make_tuple(Meter& meter, std::vector<Value> items, bool group = false);
Value make_dict(Meter& meter, Dict dict);
Value make_undefined(std::string message);
Value make_iterator(Iterator::Next next, std::uint32_t source_depth, std::string_view type = "generator");
/// Converts JSON. Throws a Fault for text that is not UTF-8 and integers beyond 64 bits.
Value from_json(const nlohmann::ordered_json& json, Meter& meter);

// ---- what every value can do ----

/// Returns the name of the Python type.
std::string_view type_name(const Value& v);
bool truth(const Value& v);
bool equal(const Value& a, const Value& b, Meter& meter);
/// Returns true if a < b. Throws a Fault if the types have no order.
bool less(const Value& a, const Value& b, Meter& meter);
/// Throws a Fault for lists and dicts.
std::size_t hash(const Value& v, Meter& meter);
/// Returns len(v), or null.
std::optional<std::size_t> length_of(const Value& v);
/// Returns iter(v). Throws a Fault if the value is not iterable.
std::shared_ptr<Iterator> iterate(const Value& v, Meter& meter);
bool is_iterable(const Value& v);
/// Returns list(v).
std::vector<Value> elements(const Value& v, Meter& meter);
/// Throws the Fault of using an undefined value, if it is one.
void require_defined(const Value& v);

}  // namespace mantissa::chat
