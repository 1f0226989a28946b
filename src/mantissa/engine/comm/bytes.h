// Values as the bytes of a message between ranks of the same build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace mantissa::comm {

using Bytes = std::vector<std::byte>;

/// Appends a value of plain memory, or the number of elements of a vector or a string and each of them.
template <class T>
void append(Bytes& all, const T& value) {
  if constexpr (std::is_trivially_copyable_v<T>) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    all.insert(all.end(), bytes.begin(), bytes.end());
  } else {
    append(all, static_cast<std::uint64_t>(value.size()));
    if constexpr (std::is_trivially_copyable_v<typename T::value_type>) {
      const auto bytes = std::as_bytes(std::span(value));
      all.insert(all.end(), bytes.begin(), bytes.end());
    } else {
      for (const auto& element : value) append(all, element);
    }
  }
}

/// Takes what append() has appended off the front of `bytes`.
template <class T>
T take(std::span<const std::byte>& bytes) {
  T value{};
  if constexpr (std::is_trivially_copyable_v<T>) {
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
    bytes = bytes.subspan(sizeof value);
  } else {
    using Element = typename T::value_type;
    value.resize(take<std::uint64_t>(bytes));
    if constexpr (std::is_trivially_copyable_v<Element>) {
      if (!value.empty())
        std::memcpy(static_cast<void*>(value.data()), bytes.data(), value.size() * sizeof(Element));
      bytes = bytes.subspan(value.size() * sizeof(Element));
    } else {
      for (Element& element : value) element = take<Element>(bytes);
    }
  }
  return value;
}

/// Appends each of `fields`, or takes them in the same order: std::tie(a.x, a.y).
template <class... T>
void append_all(Bytes& all, const std::tuple<T&...>& fields) {
  std::apply([&](const auto&... field) { (append(all, field), ...); }, fields);
}
template <class... T>
void take_all(std::span<const std::byte>& bytes, const std::tuple<T&...>& fields) {
  std::apply([&](auto&... field) { ((field = take<std::remove_reference_t<decltype(field)>>(bytes)), ...); },
             fields);
}

/// Returns the values of which `bytes` consist, without their number.
template <class T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
  return values;
}

}  // namespace mantissa::comm
