// The expressions of Parser, from the weakest operator to the strongest.
#include <fmt/format.h>

#include "mantissa/text/chat/filters.h"
#include "mantissa/text/chat/parser.h"
#include "mantissa/text/chat/tests.h"

namespace mantissa::chat {

using ExpressionKind = Expression::Kind;

ExpressionPtr Parser::node(ExpressionKind kind, Place place, std::vector<ExpressionPtr> operands) {
  auto e = std::make_unique<Expression>(Expression{.kind = kind, .place = place});
  e->operands = std::move(operands);
  return measured(std::move(e));
}

ExpressionPtr Parser::measured(ExpressionPtr e) const {
  constexpr std::uint32_t kDeepest = 300;
  const auto include = [&](const ExpressionPtr& part) {
    if (part) e->depth = std::max(e->depth, part->depth + 1);
  };
  for (const auto& operand : e->operands) include(operand);
  for (const auto& argument : e->arguments.positional) include(argument);
  for (const auto& [name, argument] : e->arguments.named) include(argument);
  include(e->arguments.rest);
  include(e->arguments.named_rest);
  if (e->depth > kDeepest) fail("the expression has too many operators. Fix: divide it", &e->place);
  return e;
}

ExpressionPtr Parser::constant(Place place, Value value) {
  ExpressionPtr e = node(ExpressionKind::constant, place);
  e->constant = std::move(value);
  return e;
}

namespace {

// make_unique cannot list move-only elements.
template <class... T>
std::vector<ExpressionPtr> list_of(T... parts) {
  std::vector<ExpressionPtr> result;
  (result.push_back(std::move(parts)), ...);
  return result;
}

}  // namespace

ExpressionPtr Parser::parse_expression(bool conditional) {
  const Nesting nesting(*this);
  if (!conditional) return parse_or();
  const Place place = current().place;
  ExpressionPtr e = parse_or();
  while (skip_name("if")) {
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
    e = node(ExpressionKind::conditional, place,
             list_of(std::move(e), std::move(test), std::move(otherwise)));
  }
  return e;
}

ExpressionPtr Parser::parse_or() {
  const Place place = current().place;
  ExpressionPtr e = parse_and();
  while (skip_name("or")) e = node(ExpressionKind::logical_or, place, list_of(std::move(e), parse_and()));
  return e;
}

ExpressionPtr Parser::parse_and() {
  const Place place = current().place;
  ExpressionPtr e = parse_not();
  while (skip_name("and")) e = node(ExpressionKind::logical_and, place, list_of(std::move(e), parse_not()));
  return e;
}

ExpressionPtr Parser::parse_not() {
  const Place place = current().place;
  if (!skip_name("not")) return parse_compare();
  const Nesting nesting(*this);
  return node(ExpressionKind::logical_not, place, list_of(parse_not()));
}

ExpressionPtr Parser::parse_compare() {
  const Place place = current().place;
  ExpressionPtr e = parse_sum();
  std::vector<std::string> operators;
  std::vector<ExpressionPtr> operands;
  while (true) {
    const Token& t = current();
    if (t.is_symbol("==") || t.is_symbol("!=") || t.is_symbol("<") || t.is_symbol("<=") || t.is_symbol(">") ||
        t.is_symbol(">=")) {
      operators.push_back(take().text);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (t.is_name("not") && ahead().is_name("in")) {
      at_ += 2;
      operators.emplace_back("not in");
    } else {
      break;
    }
    operands.push_back(parse_sum());
  }
  if (operators.empty()) return e;
  operands.insert(operands.begin(), std::move(e));
  ExpressionPtr compare = node(ExpressionKind::compare, place, std::move(operands));
  compare->comparisons = std::move(operators);
  return compare;
}

ExpressionPtr Parser::parse_sum() {
  const Place place = current().place;
  ExpressionPtr e = parse_concatenation();
  while (current().is_symbol("+") || current().is_symbol("-")) {
    std::string symbol = take().text;
    e = node(ExpressionKind::binary, place, list_of(std::move(e), parse_concatenation()));
    e->text = std::move(symbol);
  }
  return e;
}

ExpressionPtr Parser::parse_concatenation() {
  const Place place = current().place;
  ExpressionPtr e = parse_product();
  if (!current().is_symbol("~")) return e;
  std::vector<ExpressionPtr> parts = list_of(std::move(e));
  while (skip_symbol("~")) parts.push_back(parse_product());
  return node(ExpressionKind::concatenate, place, std::move(parts));
}

ExpressionPtr Parser::parse_product() {
  const Place place = current().place;
  ExpressionPtr e = parse_power();
  while (current().is_symbol("*") || current().is_symbol("/") || current().is_symbol("//") ||
         current().is_symbol("%")) {
    std::string symbol = take().text;
    e = node(ExpressionKind::binary, place, list_of(std::move(e), parse_power()));
    e->text = std::move(symbol);
  }
  return e;
}

ExpressionPtr Parser::parse_power() {
  const Place place = current().place;
  ExpressionPtr e = parse_unary();
  while (skip_symbol("**")) {
    e = node(ExpressionKind::binary, place, list_of(std::move(e), parse_unary()));
    e->text = "**";
  }
  return e;
}

ExpressionPtr Parser::parse_unary(bool filters) {
  const Place place = current().place;
  ExpressionPtr e;
  if (current().is_symbol("-") || current().is_symbol("+")) {
    const Nesting nesting(*this);
    const ExpressionKind kind = take().text == "-" ? ExpressionKind::negative : ExpressionKind::positive;
    e = node(kind, place, list_of(parse_unary(false)));
  } else {
    e = parse_primary();
  }
  e = parse_postfix(std::move(e));
  return filters ? parse_filters(std::move(e)) : std::move(e);
}

ExpressionPtr Parser::parse_primary() {
  const Token token = current();
  switch (token.type) {
    case Token::Type::name: {
      take();
      const std::string& word = token.text;
      if (word == "true" || word == "True") return constant(token.place, Value(true));
      if (word == "false" || word == "False") return constant(token.place, Value(false));
      if (word == "none" || word == "None") return constant(token.place, Value());
      ExpressionPtr e = node(ExpressionKind::name, token.place);
      e->symbol = symbol(word);
      e->text = word;
      return e;
    }
    case Token::Type::string: {
      std::string joined;
      while (current().type == Token::Type::string) joined += take().text;
      return constant(token.place, make_text(meter_, std::move(joined)));
    }
    case Token::Type::integer:
      return constant(take().place, Value(token.integer));
    case Token::Type::real:
      return constant(take().place, Value(token.real));
    default:
      break;
  }
  if (skip_symbol("(")) {
    ExpressionPtr e = parse_tuple(true, true);
    expect_symbol(")");
    return e;
  }
  if (token.is_symbol("[")) return parse_list();
  if (token.is_symbol("{")) return parse_dict();
  fail(token.type == Token::Type::symbol ? fmt::format("unexpected '{}'; expected an expression", token.text)
                                         : "expected an expression");
}

ExpressionPtr Parser::parse_tuple(bool conditional, bool parentheses) {
  const Place place = current().place;
  std::vector<ExpressionPtr> parts;
  bool tuple = false;
  while (true) {
    const Token& t = current();
    if (t.type == Token::Type::variable_end || t.type == Token::Type::block_end || t.is_symbol(")")) break;
    parts.push_back(parse_expression(conditional));
    if (!skip_symbol(",")) break;
    tuple = true;
  }
  if (!tuple && !parts.empty()) return std::move(parts.front());
  if (!tuple && !parentheses) fail("expected an expression");
  return node(ExpressionKind::tuple, place, std::move(parts));
}

ExpressionPtr Parser::parse_list() {
  const Place place = take().place;
  std::vector<ExpressionPtr> items;
  while (!current().is_symbol("]")) {
    if (!items.empty()) expect_symbol(",");
    if (current().is_symbol("]")) break;
    items.push_back(parse_expression());
  }
  expect_symbol("]");
  return node(ExpressionKind::list, place, std::move(items));
}

ExpressionPtr Parser::parse_dict() {
  const Place place = take().place;
  std::vector<ExpressionPtr> items;
  while (!current().is_symbol("}")) {
    if (!items.empty()) expect_symbol(",");
    if (current().is_symbol("}")) break;
    items.push_back(parse_expression());
    expect_symbol(":");
    items.push_back(parse_expression());
  }
  expect_symbol("}");
  return node(ExpressionKind::dict, place, std::move(items));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr e) {
  while (true) {
    if (current().is_symbol(".") || current().is_symbol("[")) {
      e = parse_subscript(std::move(e));
    } else if (current().is_symbol("(")) {
      e = parse_call(std::move(e));
    } else {
      return e;
    }
  }
}

ExpressionPtr Parser::parse_filters(ExpressionPtr e) {
  while (true) {
    if (current().is_symbol("|")) {
      e = parse_filter(std::move(e));
    } else if (current().is_name("is")) {
      e = parse_test(std::move(e));
    } else if (current().is_symbol("(")) {
      e = parse_call(std::move(e));
    } else {
      return e;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr e) {
  const Place place = take().place;
  if (tokens_[at_ - 1].is_symbol(".")) {
    const Token name = take();
    if (name.type == Token::Type::name) {
      ExpressionPtr attribute = node(ExpressionKind::attribute, place, list_of(std::move(e)));
      attribute->text = name.text;
      attribute->constant = make_text(meter_, name.text);
      return attribute;
    }
    if (name.type != Token::Type::integer) fail("expected a name or a number after '.'", &name.place);
    return node(ExpressionKind::item, place,
                list_of(std::move(e), constant(name.place, Value(name.integer))));
  }
  ExpressionPtr first = current().is_symbol(":") ? nullptr : parse_expression();
  if (!current().is_symbol(":")) {
    if (current().is_symbol(",")) fail("an index of several values is not supported");
    expect_symbol("]");
    return node(ExpressionKind::item, place, list_of(std::move(e), std::move(first)));
  }
  ExpressionPtr parts[2];
  for (ExpressionPtr& part : parts) {
    if (skip_symbol(":") && !current().is_symbol("]") && !current().is_symbol(":")) part = parse_expression();
  }
  expect_symbol("]");
  return node(ExpressionKind::slice, place,
              list_of(std::move(e), std::move(first), std::move(parts[0]), std::move(parts[1])));
}

CallArguments Parser::parse_arguments() {
  CallArguments result;
  expect_symbol("(");
  for (bool first = true; !current().is_symbol(")"); first = false) {
    if (!first) expect_symbol(",");
    if (current().is_symbol(")")) break;
    if (current().is_symbol("**")) {
      if (result.named_rest) fail("only one ** argument is possible");
      take();
      result.named_rest = parse_expression();
    } else if (current().is_symbol("*")) {
      if (result.rest || result.named_rest) fail("only one * argument is possible, before **");
      take();
      result.rest = parse_expression();
    } else if (current().type == Token::Type::name && ahead().is_symbol("=")) {
      if (result.named_rest) fail("a named argument must stand before **");
      std::string name = take().text;
      take();
      for (const auto& [other, value] : result.named) {
        if (other == name) fail(fmt::format("the argument {} is given twice", name));
      }
      result.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!result.named.empty() || result.rest || result.named_rest)
        fail("a positional argument follows a named one");
      result.positional.push_back(parse_expression());
    }
  }
  expect_symbol(")");
  return result;
}

ExpressionPtr Parser::parse_call(ExpressionPtr e) {
  ExpressionPtr call = node(ExpressionKind::call, current().place, list_of(std::move(e)));
  call->arguments = parse_arguments();
  return measured(std::move(call));
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_symbol(".")) name += "." + expect_name();
  return name;
}

ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
  if (input) take();  // the bar
  const Place place = current().place;
  ExpressionPtr filter = node(ExpressionKind::filter, place, list_of(std::move(input)));
  filter->text = parse_dotted_name();
  if (conditions_ == 0 && !find_filter(filter->text)) fail(unknown_filter(filter->text), &place);
  if (current().is_symbol("(")) filter->arguments = parse_arguments();
  return measured(std::move(filter));
}

ExpressionPtr Parser::parse_test(ExpressionPtr e) {
  take();
  const bool negated = skip_name("not");
  const Place place = current().place;
  ExpressionPtr test = node(ExpressionKind::test, place, list_of(std::move(e)));
  test->text = parse_dotted_name();
  if (conditions_ == 0 && !find_test(test->text)) fail(unknown_test(test->text), &place);
  const Token& t = current();
  if (t.is_symbol("(")) {
    test->arguments = parse_arguments();
  } else if (t.type == Token::Type::string || t.type == Token::Type::integer || t.type == Token::Type::real ||
             t.is_symbol("[") || t.is_symbol("{") ||
             (t.type == Token::Type::name && t.text != "else" && t.text != "or" && t.text != "and")) {
    if (t.text == "is" && t.type == Token::Type::name)
      fail("tests cannot be chained with 'is'. Fix: join them with 'and'");
    test->arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  test = measured(std::move(test));
  return negated ? node(ExpressionKind::logical_not, place, list_of(std::move(test))) : std::move(test);
}

}  // namespace mantissa::chat
