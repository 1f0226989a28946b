// The expressions of Interpreter.
#include <fmt/format.h>

#include "mantissa/text/chat/access.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/operators.h"
#include "mantissa/text/chat/print.h"
#include "mantissa/text/chat/tests.h"

namespace mantissa::chat {

using ExpressionKind = Expression::Kind;

Value Interpreter::evaluate(const Expression& e) {
  try {
    const Meter::Nested nested(meter_);
    meter_.step();
    return evaluate_plain(e);
  } catch (const Fault& f) {
    fail(e.place, f.what());
  } catch (const RaiseCalled& raised) {
    throw RaisedByTemplate(program_.name, e.place, raised.what());
  }
}

Value Interpreter::evaluate_plain(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::constant:
      return e.constant;
    case ExpressionKind::name:
      return evaluate_name(e);
    case ExpressionKind::list:
      return make_list(meter_, evaluate_all(e.operands));
    case ExpressionKind::tuple:
      return make_tuple(meter_, evaluate_all(e.operands));
    case ExpressionKind::dict:
      return evaluate_dict(e);
    case ExpressionKind::attribute:
      return get_attribute(*this, evaluate(*e.operands[0]), e.constant);
    case ExpressionKind::item: {
      const Value object = evaluate(*e.operands[0]);
      return get_item(*this, object, evaluate(*e.operands[1]));
    }
    case ExpressionKind::slice:
      return evaluate_slice(e);
    case ExpressionKind::call: {
      const Value callee = evaluate(*e.operands[0]);
      Arguments arguments = evaluate_arguments(e.arguments);
      return call(callee, arguments);
    }
    case ExpressionKind::filter:
      return evaluate_filter(e, nullptr);
    case ExpressionKind::test: {
      const Value input = evaluate(*e.operands[0]);
      Arguments arguments = evaluate_arguments(e.arguments);
      return Value(apply_test(e.text, input, arguments));
    }
    case ExpressionKind::negative:
      return negate(evaluate(*e.operands[0]));
    case ExpressionKind::positive:
      return positive(evaluate(*e.operands[0]));
    case ExpressionKind::logical_not:
      return Value(!truth(evaluate(*e.operands[0])));
    case ExpressionKind::logical_and:
    case ExpressionKind::logical_or: {
      Value left = evaluate(*e.operands[0]);
      return truth(left) == (e.kind == ExpressionKind::logical_or) ? left : evaluate(*e.operands[1]);
    }
    case ExpressionKind::conditional:
      return evaluate_conditional(e);
    case ExpressionKind::concatenate:
      return evaluate_concatenation(e);
    case ExpressionKind::binary: {
      const Value left = evaluate(*e.operands[0]);
      return apply_operator(e.text, left, evaluate(*e.operands[1]), meter_);
    }
    case ExpressionKind::compare:
      return evaluate_compare(e);
  }
  throw InternalError("an expression of an unknown kind");
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& e : expressions) values.push_back(evaluate(*e));
  return values;
}

Value Interpreter::evaluate_name(const Expression& e) {
  if (const Value* value = scope_->find(e.symbol)) return *value;
  if (auto global = find_global(e.text)) return *global;
  return make_undefined(fmt::format("'{}' is undefined", e.text));
}

Value Interpreter::evaluate_dict(const Expression& e) {
  Dict dict;
  for (std::size_t i = 0; i < e.operands.size(); i += 2) {
    Value key = evaluate(*e.operands[i]);
    dict.set(std::move(key), evaluate(*e.operands[i + 1]), meter_);
  }
  return make_dict(meter_, std::move(dict));
}

Value Interpreter::evaluate_slice(const Expression& e) {
  const Value object = evaluate(*e.operands[0]);
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (e.operands[i + 1]) parts[i] = evaluate(*e.operands[i + 1]);
  }
  return get_slice(object, parts[0], parts[1], parts[2], meter_);
}

Value Interpreter::evaluate_conditional(const Expression& e) {
  if (truth(evaluate(*e.operands[1]))) return evaluate(*e.operands[0]);
  if (e.operands[2]) return evaluate(*e.operands[2]);
  return make_undefined("the condition is false and there is no 'else'. Fix: add 'else'");
}

Value Interpreter::evaluate_compare(const Expression& e) {
  Value left = evaluate(*e.operands[0]);
  for (std::size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = evaluate(*e.operands[i + 1]);
    if (!apply_comparison(e.comparisons[i], left, right, meter_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::evaluate_concatenation(const Expression& e) {
  std::string joined;
  for (const auto& part : e.operands) joined += str(evaluate(*part), meter_);
  return make_text(meter_, std::move(joined));
}

Arguments Interpreter::evaluate_arguments(const CallArguments& a) {
  Arguments arguments;
  arguments.positional = evaluate_all(a.positional);
  for (const auto& [name, e] : a.named) arguments.named.emplace_back(name, evaluate(*e));
  if (a.rest) {
    for (Value& v : elements(evaluate(*a.rest), meter_)) arguments.positional.push_back(std::move(v));
  }
  if (a.named_rest) {
    const Value rest = evaluate(*a.named_rest);
    require_defined(rest);
    if (!rest.dict()) throw Fault("** needs a mapping, not '{}'", type_name(rest));
    for (const auto& [key, value] : rest.dict()->entries) {
      if (!key.text()) throw Fault("** needs strings as keys");
      for (const auto& [name, other] : arguments.named) {
        if (name == key.text()->bytes) throw Fault("the argument '{}' is given twice", name);
      }
      meter_.step(1 + arguments.named.size());
      arguments.named.emplace_back(key.text()->bytes, value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_filter(const Expression& e, const Value* input) {
  const Expression* operand = e.operands[0].get();
  Value value;
  if (!operand) {
    value = *input;
  } else if (input) {
    value = evaluate_filter(*operand, input);
  } else {
    value = evaluate(*operand);
  }
  Arguments arguments = evaluate_arguments(e.arguments);
  return apply_filter(e.text, value, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  require_defined(callee);
  if (!callee.object()) throw Fault("'{}' object is not callable", type_name(callee));
  return callee.object()->call(*this, arguments);
}

Value Interpreter::apply_filter(const std::string& name, const Value& input, Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (!filter) throw Fault(unknown_filter(name));
  return filter(*this, input, arguments);
}

bool Interpreter::apply_test(const std::string& name, const Value& input, Arguments& arguments) {
  const Test test = find_test(name);
  if (!test) throw Fault(unknown_test(name));
  return test(*this, input, arguments);
}

}  // namespace mantissa::chat
