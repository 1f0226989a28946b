// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest;        // *rest
  ExpressionPtr named_rest;  // **named_rest
};

struct Expression {
  enum class Kind {
    constant,
    name,
    list,
    tuple,
    dict,       // operands: key, value, key, value, …
    attribute,  // operand . text
    item,       // operand [ operand ]
    slice,      // operand [ operand : operand : operand ]; the last three may be null
    call,
    filter,  // operand | text(arguments); the operand is null in a filter block
    test,    // operand is text(arguments)
    negative,
    positive,
    logical_not,
    logical_and,
    logical_or,
    conditional,  // operand if operand else operand; the last may be null
    concatenate,
    binary,  // operand text operand
    compare  // operand, then one operator of `comparisons` and one operand each
  };
  Kind kind;
  Place place;
  std::string text = {};
  int symbol = -1;  // of a name
  Value constant = {};
  std::vector<ExpressionPtr> operands = {};
  std::vector<std::string> comparisons = {};
  CallArguments arguments = {};
  std::uint32_t depth = 1;
};

/// The left side of an assignment.
struct Target {
  enum class Kind { name, attribute, tuple };
  Kind kind = Kind::name;
  Place place = {};
  int symbol = -1;
  std::string attribute = {};      // of a namespace
  std::vector<Target> parts = {};  // of a tuple
};

struct Statement;
using Body = std::vector<Statement>;

struct Parameter {
  std::string name;
  int symbol;
  ExpressionPtr preset;  // may be null
};

struct Statement {
  enum class Kind {
    text,
    print,
    loop,
    condition,
    set,
    set_block,
    macro,
    call_block,
    filter_block,
    with,
    generation,
    leave,
    next
  };
  Kind kind;
  Place place = {};
  std::string text = {};  // text; the name of a macro
  int symbol = -1;        // of a macro
  std::vector<ExpressionPtr> expressions =
      {};  // printed; the iterable and the test; values; the call; the filter
  std::vector<Target> targets = {};
  std::vector<Parameter> parameters = {};
  // True if the body of a macro uses the hidden parameters, and so accepts them.
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  std::vector<std::pair<ExpressionPtr, Body>> branches = {};  // of a condition
  Body body = {};
  Body otherwise = {};  // else
};

/// A parsed template. Names are numbered.
struct Program {
  std::string name;
  Body body;
  std::vector<std::string> symbols;
  std::vector<int> hidden;  // the names that hide the conversation's variables (hidden_names.h)

  /// Returns the number of a name, or -1.
  int symbol(std::string_view name) const;
};

}  // namespace mantissa::chat
