// Filters of sequences and mappings.
#include <algorithm>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/operators.h"
#include "mantissa/text/chat/print.h"

namespace mantissa::chat {

namespace {

// Sorts in Python's order. The sort must not throw between its moves, so that positions are sorted.
std::vector<std::size_t> sorted_positions(const std::vector<Value>& keys, bool reverse, Meter& meter) {
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(keys[b], keys[a], meter) : less(keys[a], keys[b], meter);
  });
  return order;
}

std::vector<Value> sort_by(const std::vector<Value>& items, const std::vector<Value>& keys, bool reverse,
                           Meter& meter) {
  std::vector<Value> result;
  for (const std::size_t i : sorted_positions(keys, reverse, meter)) result.push_back(items[i]);
  return result;
}

Value sequence_list(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("list", a, {});
  return make_list(in.meter(), elements(input, in.meter()));
}

Value sequence_join(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("join", a, {"d", "attribute"});
  const std::string separator = p.given(0) ? str(p.at(0), in.meter()) : "";
  const AttributePath path(p.some(1) ? p.at(1) : Value(), in.meter());
  std::string out;
  bool first = true;
  const auto it = iterate(input, in.meter());
  while (const auto next = it->next()) {
    in.meter().allocate(first ? 0 : separator.size());
    if (!first) out += separator;
    first = false;
    out += str(path(in, *next), in.meter());
  }
  return make_text(in.meter(), std::move(out));
}

Value sequence_first(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("first", a, {});
  const auto next = iterate(input, in.meter())->next();
  return next ? *next : make_undefined("No first item, sequence was empty.");
}

// The elements of a value that Python's reversed() takes.
std::vector<Value> reversible(Interpreter& in, const Value& input) {
  if (input.as<Iterator>() || !is_iterable(input)) {
    throw Fault("'{}' cannot be reversed{}", type_name(input),
                input.as<Iterator>() ? ". Fix: add the filter 'list' before it" : "");
  }
  return elements(input, in.meter());
}

Value sequence_last(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("last", a, {});
  if (const List* list = input.list(); list && !list->items.empty()) return list->items.back();
  const std::vector<Value> items = reversible(in, input);
  return items.empty() ? make_undefined("No last item, sequence was empty.") : items.back();
}

Value sequence_reverse(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("reverse", a, {});
  std::vector<Value> items = elements(input, in.meter());
  std::reverse(items.begin(), items.end());
  if (input.text()) {
    std::string out;
    for (const Value& v : items) out += v.text()->bytes;
    return make_text(in.meter(), std::move(out));
  }
  if (input.as<Iterator>() || input.is_undefined()) return make_list(in.meter(), std::move(items));
  return make_iterator(
      [items = std::move(items), i = std::size_t{0}]() mutable {
        return i < items.size() ? std::optional<Value>(items[i++]) : std::nullopt;
      },
      input.depth(), "list_reverseiterator");
}

Value sequence_sort(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("sort", a, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> items = elements(input, in.meter());
  std::vector<AttributePath> paths;
  if (p.some(2) && p.at(2).text()) {
    const std::string& names = p.text(2);
    for (std::size_t at = 0; at <= names.size();) {
      const std::size_t comma = std::min(names.find(',', at), names.size());
      paths.emplace_back(make_text(in.meter(), names.substr(at, comma - at)), in.meter());
      at = comma + 1;
    }
  } else {
    paths.emplace_back(p.some(2) ? p.at(2) : Value(), in.meter());
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    for (const AttributePath& path : paths)
      key.push_back(p.flag(1, false) ? path(in, item) : fold_case(in, path(in, item)));
    keys.push_back(make_list(in.meter(), std::move(key)));
  }
  return make_list(in.meter(), sort_by(items, keys, p.flag(0, false), in.meter()));
}

Value sequence_dictsort(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = p.given(1) ? p.text(1) : "key";
  if (by != "key" && by != "value") throw Fault("dictsort sorts by 'key' or 'value'");
  require_defined(input);
  if (!input.dict()) throw Fault("dictsort takes a mapping, not '{}'", type_name(input));
  std::vector<Value> items, keys;
  for (const auto& [key, value] : input.dict()->entries) {
    items.push_back(make_tuple(in.meter(), {key, value}));
    const Value& k = by == "key" ? key : value;
    keys.push_back(p.flag(0, false) ? k : fold_case(in, k));
  }
  return make_list(in.meter(), sort_by(items, keys, p.flag(2, false), in.meter()));
}

Value sequence_items(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("items", a, {});
  // Like a generator, it fails when it is read.
  return make_iterator(
      [input, &in, i = std::size_t{0}]() mutable -> std::optional<Value> {
        if (input.is_undefined()) return std::nullopt;
        const Dict* dict = input.dict();
        if (!dict) throw Fault("items takes a mapping, not '{}'", type_name(input));
        if (i >= dict->entries.size()) return std::nullopt;
        const auto& [key, value] = dict->entries[i++];
        return make_tuple(in.meter(), {key, value});
      },
      input.depth() + 1);
}

Value sequence_unique(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("unique", a, {"case_sensitive", "attribute"});
  const AttributePath path(p.some(1) ? p.at(1) : Value(), in.meter());
  const auto seen = std::make_shared<Dict>();
  const bool sensitive = p.flag(0, false);
  return make_iterator(
      [&in, path, seen, sensitive, input,
       source = std::shared_ptr<Iterator>()]() mutable -> std::optional<Value> {
        if (!source) source = iterate(input, in.meter());
        while (auto next = source->next()) {
          in.meter().step();
          Value key = path(in, *next);
          if (!sensitive) key = fold_case(in, key);
          if (seen->find(key, in.meter())) continue;
          seen->set(std::move(key), Value(), in.meter());
          return next;
        }
        return std::nullopt;
      },
      input.depth());
}

Value least_or_most(std::string_view name, bool most, Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p(name, a, {"case_sensitive", "attribute"});
  const AttributePath path(p.some(1) ? p.at(1) : Value(), in.meter());
  const bool sensitive = p.flag(0, false);
  std::optional<Value> best, best_key;
  for (const Value& item : elements(input, in.meter())) {
    Value key = path(in, item);
    if (!sensitive) key = fold_case(in, key);
    if (best && !(most ? less(*best_key, key, in.meter()) : less(key, *best_key, in.meter()))) continue;
    best = item;
    best_key = std::move(key);
  }
  return best ? *best : make_undefined("No aggregated item, sequence was empty.");
}

Value sequence_min(Interpreter& in, const Value& input, Arguments& a) {
  return least_or_most("min", false, in, input, a);
}
Value sequence_max(Interpreter& in, const Value& input, Arguments& a) {
  return least_or_most("max", true, in, input, a);
}

Value sequence_sum(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("sum", a, {"attribute", "start"});
  const AttributePath path(p.some(0) ? p.at(0) : Value(), in.meter());
  Value sum = p.given(1) ? p.at(1) : Value(std::int64_t{0});
  if (sum.text()) throw Fault("sum does not join strings. Fix: use the filter 'join'");
  for (const Value& item : elements(input, in.meter()))
    sum = apply_operator("+", sum, path(in, item), in.meter());
  return sum;
}

Value sequence_batch(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("batch", a, {"linecount", "fill_with"}, 1);
  const std::int64_t size = p.integer(0);
  std::vector<Value> lines, line;
  // Full lines, then the rest. A line of no elements never fills up.
  for (const Value& item : elements(input, in.meter())) {
    if (static_cast<std::int64_t>(line.size()) == size)
      lines.push_back(make_list(in.meter(), std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    while (p.some(1) && static_cast<std::int64_t>(line.size()) < size) {
      in.meter().allocate(sizeof(Value));
      line.push_back(p.at(1));
    }
    lines.push_back(make_list(in.meter(), std::move(line)));
  }
  const std::uint32_t depth = input.depth() + 1;
  return make_iterator(
      [lines = std::move(lines), i = std::size_t{0}]() mutable {
        return i < lines.size() ? std::optional<Value>(lines[i++]) : std::nullopt;
      },
      depth);
}

Value sequence_slice(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("slice", a, {"slices", "fill_with"}, 1);
  const std::int64_t slices = p.integer(0);
  if (slices == 0) throw Fault("slice: division by zero");
  const std::vector<Value> items = elements(input, in.meter());
  in.meter().step(static_cast<std::uint64_t>(std::max<std::int64_t>(slices, 0)));
  std::vector<Value> parts;
  if (slices > 0) {
    const auto n = static_cast<std::size_t>(slices);
    const std::size_t each = items.size() / n, longer = items.size() % n;
    std::size_t at = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t size = each + (i < longer);
      std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                              items.begin() + static_cast<std::ptrdiff_t>(at + size));
      if (p.some(1) && i >= longer) part.push_back(p.at(1));
      parts.push_back(make_list(in.meter(), std::move(part)));
      at += size;
    }
  }
  const std::uint32_t depth = input.depth() + 1;
  return make_iterator(
      [parts = std::move(parts), i = std::size_t{0}]() mutable {
        return i < parts.size() ? std::optional<Value>(parts[i++]) : std::nullopt;
      },
      depth);
}

Value sequence_groupby(Interpreter& in, const Value& input, Arguments& a) {
  const Parameters p("groupby", a, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(p.at(0), in.meter());
  const Value preset = p.given(1) ? p.at(1) : Value();
  const std::vector<Value> items = elements(input, in.meter());
  std::vector<Value> keys;
  for (const Value& item : items) {
    Value key = path(in, item, preset);
    keys.push_back(p.flag(2, false) ? key : fold_case(in, key));
  }
  std::vector<Value> groups, members;
  std::optional<Value> key;
  const auto end_group = [&] {
    if (members.empty()) return;
    Value name = path(in, members[0], preset);
    groups.push_back(
        make_tuple(in.meter(), {std::move(name), make_list(in.meter(), std::exchange(members, {}))}, true));
  };
  for (const std::size_t i : sorted_positions(keys, false, in.meter())) {
    if (key && !equal(*key, keys[i], in.meter())) end_group();
    key = keys[i];
    members.push_back(items[i]);
  }
  end_group();
  return make_list(in.meter(), std::move(groups));
}

}  // namespace

std::span<const FilterRow> sequence_filters() {
  static constexpr FilterRow kRows[] = {
      {"list", sequence_list},         {"join", sequence_join},       {"first", sequence_first},
      {"last", sequence_last},         {"reverse", sequence_reverse}, {"sort", sequence_sort},
      {"dictsort", sequence_dictsort}, {"items", sequence_items},     {"unique", sequence_unique},
      {"min", sequence_min},           {"max", sequence_max},         {"sum", sequence_sum},
      {"batch", sequence_batch},       {"slice", sequence_slice},     {"groupby", sequence_groupby}};
  return kRows;
}

}  // namespace mantissa::chat
