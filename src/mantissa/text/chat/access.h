// Attributes, items and slices, by the rules of Jinja's sandbox.
#pragma once

#include <string_view>

#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

/// Returns `object.name`: an attribute or method, else the item `name`, else undefined.
Value get_attribute(Interpreter& in, const Value& object, const Value& name);
/// Returns `object[key]`: an item, else the attribute `key`, else undefined.
Value get_item(Interpreter& in, const Value& object, const Value& key);
/// Returns `object[start:stop:step]`; None stands for an absent part.
Value get_slice(const Value& object, const Value& start, const Value& stop, const Value& step, Meter& meter);

/// Returns the method of a string, list, tuple or dict, undefined for one that the sandbox forbids, or null
/// if there is no such method. Throws a Fault for a method of Python that is not supported.
std::optional<Value> find_method(const Value& object, std::string_view name, Meter& meter);
/// Calls a method of a string.
Value call_text_method(Interpreter& in, const Value& text, std::string_view name, Arguments& arguments);
/// Calls a method of a list, tuple, dict or range.
Value call_container_method(Interpreter& in, const Value& container, std::string_view name,
                            Arguments& arguments);

}  // namespace mantissa::chat
