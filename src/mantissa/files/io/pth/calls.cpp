#include "mantissa/files/io/pth/calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/printable.h"
#include "mantissa/files/io/pth/failure.h"
#include "mantissa/files/io/pth/globals.h"

namespace mantissa::io::pth {
namespace {

using Kind = Value::Kind;

constexpr std::size_t kMostValues = 1 << 22, kMostDimensions = 64;

/// Returns true if `dict` is a dict in which `key` is True.
bool is_set(const Value& dict, std::string_view key) {
  if (!dict.is_dict()) return false;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value &name = *dict.items[i], &value = *dict.items[i + 1];
    if (name.kind == Kind::text && name.text == key) return value.kind == Kind::boolean && value.integer != 0;
  }
  return false;
}

}  // namespace

void Calls::require(bool holds, const char* what) const {
  if (!holds) fail_file(where_, what);
}

Value* Calls::add(Kind kind) {
  require(pickle_.values.size() < kMostValues, "its pickle has more than 4194304 values");
  Value& value = pickle_.values.emplace_back();
  value.kind = kind;
  return &value;
}

Value* Calls::global(std::string_view module, std::string_view name) {
  const std::optional<FoundGlobal> found = find_global(module, name);
  if (!found) {
    fail_file(where_,
              fmt::format("its pickle needs {}, which is not part of a state dict; nothing was run",
                          name_in_quotes(fmt::format("{}.{}", module, name))),
              "if you trust the file, load it in Python and save only the tensors: "
              "torch.save(model.state_dict(), FILE)");
  }
  Value* value = add(found->global == Global::dtype ? Kind::dtype : Kind::global);
  value->integer = static_cast<std::int64_t>(found->global);
  value->dtype = found->dtype;
  return value;
}

Value* Calls::storage(const Value& id) {
  const bool is_id = id.kind == Kind::tuple && id.items.size() >= 5 && id.items[0]->kind == Kind::text &&
                     id.items[0]->text == "storage" && id.items[1]->kind == Kind::global &&
                     id.items[1]->integer == static_cast<std::int64_t>(Global::storage) &&
                     id.items[2]->kind == Kind::text && id.items[4]->kind == Kind::integer;
  require(is_id, "its pickle has a persistent id that is not a storage");
  const std::int64_t count = id.items[4]->integer;
  const auto width = static_cast<std::int64_t>(bytes_of(id.items[1]->dtype));
  require(count >= 0 && count <= INT64_MAX / width, "its pickle has a storage of an impossible size");
  Value* value = add(Kind::storage);
  value->dtype = id.items[1]->dtype;
  value->text = id.items[2]->text;
  value->integer = count * width;
  return value;
}

Value* Calls::call(const Value& callable, const Value& arguments) {
  require(callable.kind == Kind::global, "its pickle calls a value that is not a function");
  require(arguments.kind == Kind::tuple, "its pickle calls a function without a tuple of arguments");
  switch (static_cast<Global>(callable.integer)) {
    case Global::ordered_dict:
      return ordered_dict(arguments);
    case Global::set:
    case Global::frozen_set:
      return container(Kind::set, arguments);
    case Global::size:
      return container(Kind::tuple, arguments);
    case Global::bytes:
    case Global::bytearray:
    case Global::encode:
      return add(Kind::bytes);
    case Global::device:
      return add(Kind::other);
    case Global::rebuild_tensor:
      return tensor(arguments, false);
    case Global::rebuild_tensor_typed:
      return tensor(arguments, true);
    case Global::rebuild_parameter:
      require(!arguments.items.empty() && arguments.items[0]->kind == Kind::tensor,
              "its pickle has a parameter without a tensor");
      return arguments.items[0];
    case Global::storage:
    case Global::dtype:
      break;
  }
  fail_file(where_, "its pickle calls a type of storages, which is not a function");
}

Value* Calls::container(Kind kind, const Value& arguments) {
  Value* value = add(kind);
  if (arguments.items.empty()) return value;
  const Value& items = *arguments.items[0];
  require(items.kind == Kind::list || items.kind == Kind::tuple || items.kind == Kind::set,
          "its pickle makes a set or a size of a value that is not a list");
  value->items = items.items;
  return value;
}

Value* Calls::ordered_dict(const Value& arguments) {
  Value* value = add(Kind::ordered_dict);
  if (arguments.items.empty()) return value;
  const Value& pairs = *arguments.items[0];  // as Python 2 writes it
  require(pairs.kind == Kind::list, "its pickle makes a dict of a value that is not a list");
  for (const Value* pair : pairs.items) {
    require((pair->kind == Kind::tuple || pair->kind == Kind::list) && pair->items.size() == 2,
            "its pickle makes a dict of values that are not pairs");
    value->items.insert(value->items.end(), pair->items.begin(), pair->items.end());
  }
  return value;
}

std::vector<std::int64_t> Calls::sizes(const Value& value) const {
  require(value.kind == Kind::tuple && value.items.size() <= kMostDimensions,
          "its pickle has a tensor whose shape or strides are not a tuple of at most 64 numbers");
  std::vector<std::int64_t> all;
  for (const Value* item : value.items) {
    require(item->kind == Kind::integer && item->integer >= 0,
            "its pickle has a tensor whose shape or strides are not positive integers");
    all.push_back(item->integer);
  }
  return all;
}

Value* Calls::tensor(const Value& arguments, bool typed) {
  const std::vector<Value*>& a = arguments.items;
  require(a.size() >= (typed ? 7U : 4U) && a[0]->kind == Kind::storage && a[1]->kind == Kind::integer &&
              a[1]->integer >= 0 && (!typed || a[6]->kind == Kind::dtype),
          "its pickle has a tensor with other arguments than PyTorch writes");
  PickledTensor tensor{a[0]->text,
                       static_cast<std::uint64_t>(a[0]->integer),
                       typed ? a[6]->dtype : a[0]->dtype,
                       a[1]->integer,
                       sizes(*a[2]),
                       sizes(*a[3])};
  require(tensor.shape.size() == tensor.strides.size(),
          "its pickle has a tensor with more strides than dimensions");
  const std::size_t settings = typed ? 7 : 6;
  if (a.size() > settings) {
    tensor.negated = is_set(*a[settings], "neg");
    tensor.conjugated = is_set(*a[settings], "conj");
  }
  Value* value = add(Kind::tensor);
  value->integer = static_cast<std::int64_t>(pickle_.tensors.size());
  pickle_.tensors.push_back(std::move(tensor));
  return value;
}

}  // namespace mantissa::io::pth
