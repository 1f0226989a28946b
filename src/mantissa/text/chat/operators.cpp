#include "mantissa/text/chat/operators.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/text_search.h"

namespace mantissa::chat {

namespace {

[[noreturn]] void wrong_types(std::string_view symbol, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  throw Fault("'{}' does not take '{}' and '{}'", symbol, type_name(a), type_name(b));
}

[[noreturn]] void overflow(std::string_view symbol) {
  throw Fault("the result of '{}' does not fit 64 bits", symbol);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) overflow("//");
    return result;
  }
  const std::int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

double floor_modulo(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  return m == 0 ? std::copysign(0.0, b) : m;
}

// As CPython's float_floor_div: from the exact remainder.
double floor_divide(double a, double b) {
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (m < 0) != (b < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(q);
  return q - floor > 0.5 ? floor + 1 : floor;
}

Value power(std::int64_t base, std::int64_t exponent, Meter& meter) {
  if (exponent < 0) {
    if (base == 0) throw Fault("0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (base == 0 || base == 1 || base == -1)
      return Value(base == 0 ? 0 : (base == 1 || exponent % 2 == 0) ? std::int64_t{1} : std::int64_t{-1});
    meter.step();
    if (__builtin_mul_overflow(result, base, &result)) overflow("**");
  }
  return Value(result);
}

Value integers(std::string_view symbol, std::int64_t a, std::int64_t b, Meter& meter) {
  std::int64_t result = 0;
  if (symbol == "+") {
    if (__builtin_add_overflow(a, b, &result)) overflow(symbol);
    return Value(result);
  }
  if (symbol == "-") {
    if (__builtin_sub_overflow(a, b, &result)) overflow(symbol);
    return Value(result);
  }
  if (symbol == "*") {
    if (__builtin_mul_overflow(a, b, &result)) overflow(symbol);
    return Value(result);
  }
  if (symbol == "**") return power(a, b, meter);
  if (b == 0) throw Fault("division by zero");
  if (symbol == "/")
    return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  if (symbol == "//") return Value(floor_divide(a, b));
  if (b == -1) return Value(std::int64_t{0});
  const std::int64_t m = a % b;
  return Value(m != 0 && (m < 0) != (b < 0) ? m + b : m);
}

Value reals(std::string_view symbol, double a, double b) {
  if (symbol == "+") return Value(a + b);
  if (symbol == "-") return Value(a - b);
  if (symbol == "*") return Value(a * b);
  if (symbol == "**") {
    if (a == 0 && b < 0) throw Fault("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b) && std::isfinite(b)) throw Fault("complex numbers are not supported");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
      throw Fault("the result of '**' is out of range");
    return Value(result);
  }
  if (b == 0) throw Fault("division by zero");
  if (symbol == "/") return Value(a / b);
  return Value(symbol == "//" ? floor_divide(a, b) : floor_modulo(a, b));
}

Value repeat(const Value& sequence, std::int64_t times, Meter& meter) {
  const std::uint64_t n = times > 0 ? static_cast<std::uint64_t>(times) : 0;
  const std::uint64_t size =
      sequence.text() ? sequence.text()->bytes.size() : sequence.list()->items.size() * sizeof(Value);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(n, size, &bytes)) bytes = UINT64_MAX;
  meter.allocate(bytes);
  meter.step(bytes / 64);
  if (const Text* t = sequence.text()) {
    std::string out;
    out.reserve(bytes);
    for (std::uint64_t i = 0; i < n && size > 0; ++i) out += t->bytes;
    return make_text(meter, std::move(out), t->markup);
  }
  const List& list = *sequence.list();
  std::vector<Value> items;
  items.reserve(n * list.items.size());
  for (std::uint64_t i = 0; i < n && size > 0; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return list.tuple ? make_tuple(meter, std::move(items)) : make_list(meter, std::move(items));
}

Value add_sequences(const Value& a, const Value& b, Meter& meter) {
  if (a.text() && b.text()) {
    const bool markup = a.text()->markup || b.text()->markup;
    meter.allocate(a.text()->bytes.size() + b.text()->bytes.size());
    const auto part = [&](const Value& v) {
      return markup && !v.text()->markup ? escape_html(v.text()->bytes) : v.text()->bytes;
    };
    return make_text(meter, part(a) + part(b), markup);
  }
  if (!a.list() || !b.list() || a.list()->tuple != b.list()->tuple) wrong_types("+", a, b);
  meter.step((a.list()->items.size() + b.list()->items.size()) / 8);
  meter.allocate((a.list()->items.size() + b.list()->items.size()) * sizeof(Value));
  std::vector<Value> items = a.list()->items;
  items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
  return a.list()->tuple ? make_tuple(meter, std::move(items)) : make_list(meter, std::move(items));
}

}  // namespace

Value apply_operator(std::string_view symbol, const Value& a, const Value& b, Meter& meter) {
  const auto i = a.as_integer(), j = b.as_integer();
  if (i && j) return integers(symbol, *i, *j, meter);
  const auto x = a.as_number(), y = b.as_number();
  if (x && y) return reals(symbol, *x, *y);
  if (symbol == "+") return add_sequences(a, b, meter);
  if (symbol == "*" && (a.text() || a.list()) && j) return repeat(a, *j, meter);
  if (symbol == "*" && (b.text() || b.list()) && i) return repeat(b, *i, meter);
  if (symbol == "%" && a.text()) {
    return make_text(meter, format_percent(a.text()->bytes, b, meter), a.text()->markup);
  }
  wrong_types(symbol, a, b);
}

bool apply_comparison(std::string_view symbol, const Value& a, const Value& b, Meter& meter) {
  if (symbol == "==") return equal(a, b, meter);
  if (symbol == "!=") return !equal(a, b, meter);
  if (symbol == "in") return contains(b, a, meter);
  if (symbol == "not in") return !contains(b, a, meter);
  const auto unordered = [](const Value& v) { return v.real() && std::isnan(*v.real()); };
  if (unordered(a) || unordered(b)) {
    less(a, b, meter);  // the types must have an order
    return false;
  }
  if (symbol == "<") return less(a, b, meter);
  if (symbol == ">") return less(b, a, meter);
  return symbol == "<=" ? !less(b, a, meter) : !less(a, b, meter);
}

Value negate(const Value& v) {
  require_defined(v);
  if (const auto i = v.as_integer()) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, *i, &result)) overflow("-");
    return Value(result);
  }
  if (const double* d = v.real()) return Value(-*d);
  throw Fault("'-' does not take '{}'", type_name(v));
}

Value positive(const Value& v) {
  require_defined(v);
  if (const auto i = v.as_integer()) return Value(*i);
  if (v.real()) return v;
  throw Fault("'+' does not take '{}'", type_name(v));
}

bool contains(const Value& container, const Value& item, Meter& meter) {
  if (const Text* t = container.text()) {
    if (!item.text()) {
      throw Fault(item.is_undefined() ? *item.undefined().message
                                      : fmt::format("'in' needs a string on the left of a string, not '{}'",
                                                    type_name(item)));
    }
    meter.scan(t->bytes.size());
    return find_text(t->bytes, item.text()->bytes) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item, meter) != nullptr;
  if (const auto* view = container.as<DictView>(); view && view->kind == DictView::Kind::keys) {
    return view->dict.dict()->find(item, meter) != nullptr;
  }
  if (const List* list = container.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& v) { return equal(v, item, meter); });
  }
  const auto it = iterate(container, meter);
  while (const auto next = it->next()) {
    if (equal(*next, item, meter)) return true;
  }
  return false;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace mantissa::chat
