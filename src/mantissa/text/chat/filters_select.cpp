// map, select, reject, selectattr, rejectattr and attr. All but attr give iterators, which do their work when
// they are read.
#include <fmt/format.h>

#include "mantissa/text/chat/access.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/interpreter.h"

namespace mantissa::chat {

namespace {

std::uint32_t depth_of(const Arguments& a) {
  std::uint32_t depth = 0;
  for (const Value& v : a.positional) depth = std::max(depth, v.depth());
  for (const auto& [name, v] : a.named) depth = std::max(depth, v.depth());
  return depth;
}

// An iterator over `step` of each element, where `step` returns null to skip it. A false input has no
// elements.
template <class Step>
Value lazily(Interpreter& in, const Value& input, std::uint32_t depth, Step step) {
  return make_iterator(
      [&in, input, step, source = std::shared_ptr<Iterator>()]() mutable -> std::optional<Value> {
        if (!truth(input)) return std::nullopt;
        if (!source) source = iterate(input, in.meter());
        while (auto next = source->next()) {
          const Meter::Nested nested(in.meter());
          in.meter().step();
          if (auto result = step(*next)) return result;
        }
        return std::nullopt;
      },
      std::max(depth, input.depth()));
}

std::string name_of(const Value& v, std::string_view what) {
  if (!v.text()) throw Fault("the name of a {} must be a string", what);
  return v.text()->bytes;
}

Value select_map(Interpreter& in, const Value& input, Arguments& a) {
  const std::uint32_t depth = depth_of(a);
  if (a.positional.empty()) {
    const auto attribute = a.take("attribute");
    if (!attribute) throw Fault("map needs the name of a filter, or attribute=");
    const Value preset = a.take("default").value_or(Value());
    if (!a.named.empty()) throw Fault("map has no parameter '{}'", a.named[0].first);
    return lazily(in, input, depth,
                  [&in, path = AttributePath(*attribute, in.meter()), preset](const Value& item) {
                    return std::optional<Value>(path(in, item, preset));
                  });
  }
  const Value name = a.positional.front();
  a.positional.erase(a.positional.begin());
  return lazily(in, input, depth, [&in, name, a](const Value& item) {
    Arguments copy = a;
    return std::optional<Value>(in.apply_filter(name_of(name, "filter"), item, copy));
  });
}

Value select_items(Interpreter& in, const Value& input, Arguments& a, std::string_view filter, bool wanted,
                   bool attribute) {
  const std::uint32_t depth = depth_of(a);
  std::optional<AttributePath> path;
  if (attribute) {
    if (a.positional.empty()) throw Fault("{} needs the name of an attribute", filter);
    path.emplace(a.positional.front(), in.meter());
    a.positional.erase(a.positional.begin());
  }
  std::optional<Value> test;
  if (!a.positional.empty()) {
    test = a.positional.front();
    a.positional.erase(a.positional.begin());
  }
  return lazily(in, input, depth, [&in, path, test, a, wanted](const Value& item) -> std::optional<Value> {
    const Value subject = path ? (*path)(in, item) : item;
    Arguments copy = a;
    const bool passes = test ? in.apply_test(name_of(*test, "test"), subject, copy) : truth(subject);
    return passes == wanted ? std::optional<Value>(item) : std::nullopt;
  });
}

Value select_select(Interpreter& in, const Value& input, Arguments& a) {
  return select_items(in, input, a, "select", true, false);
}
Value select_reject(Interpreter& in, const Value& input, Arguments& a) {
  return select_items(in, input, a, "reject", false, false);
}
Value select_selectattr(Interpreter& in, const Value& input, Arguments& a) {
  return select_items(in, input, a, "selectattr", true, true);
}
Value select_rejectattr(Interpreter& in, const Value& input, Arguments& a) {
  return select_items(in, input, a, "rejectattr", false, true);
}

// An attribute that is not an item.
Value select_attr(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("attr", a, {"name"}, 1);
  const std::string& name = p.text(0);
  require_defined(input);
  if (!find_method(input, name, in.meter()) && !(input.object() && input.object()->attribute(in, name)) &&
      !(name.starts_with("__") && name.ends_with("__"))) {
    return make_undefined(fmt::format("'{} object' has no attribute '{}'", type_name(input), name));
  }
  return get_attribute(in, input, p.at(0));
}

}  // namespace

std::span<const FilterRow> select_filters() {
  static constexpr FilterRow kRows[] = {{"map", select_map},
                                        {"select", select_select},
                                        {"reject", select_reject},
                                        {"selectattr", select_selectattr},
                                        {"rejectattr", select_rejectattr},
                                        {"attr", select_attr}};
  return kRows;
}

}  // namespace mantissa::chat
