// The tokens and statements of Parser.
#include "mantissa/text/chat/parser.h"

#include <fmt/format.h>

#include "mantissa/text/chat/hidden_names.h"

namespace mantissa::chat {

using StatementKind = Statement::Kind;

int Program::symbol(std::string_view word) const {
  for (std::size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i] == word) return static_cast<int>(i);
  }
  return -1;
}

std::shared_ptr<const Program> parse_template(std::string_view source, std::string name) {
  return Parser(source, std::move(name)).run();
}

Parser::Parser(std::string_view source, std::string name) {
  program_->name = std::move(name);
  tokens_ = tokenize(source, program_->name);
}

std::shared_ptr<const Program> Parser::run() {
  try {
    program_->body = parse_body({});
    program_->hidden = hidden_names(program_->body);
  } catch (const Fault& f) {
    fail(f.what());
  }
  return program_;
}

void Parser::fail(const std::string& message, const Place* place) const {
  throw TemplateError(program_->name, place ? *place : current().place, message);
}

Token Parser::take() {
  Token token = current();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_symbol(std::string_view word) {
  if (!current().is_symbol(word)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view word) {
  if (!current().is_name(word)) return false;
  take();
  return true;
}

void Parser::expect_symbol(std::string_view word) {
  if (!skip_symbol(word)) fail(fmt::format("expected '{}'", word));
}

std::string Parser::expect_name() {
  if (current().type != Token::Type::name) fail("expected a name");
  return take().text;
}

void Parser::expect(Token::Type type) {
  if (current().type == type) {
    take();
    return;
  }
  const std::string_view end = type == Token::Type::variable_end ? "}}" : "%}";
  fail(current().text.empty() ? fmt::format("expected \"{}\"", end)
                              : fmt::format("expected \"{}\", got '{}'", end, current().text));
}

int Parser::symbol(const std::string& name) {
  const auto [it, added] = symbols_.try_emplace(name, static_cast<int>(program_->symbols.size()));
  if (added) program_->symbols.push_back(name);
  return it->second;
}

Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  Body body;
  while (current().type != Token::Type::end) {
    const Place place = current().place;
    if (current().type == Token::Type::data) {
      body.push_back({.kind = StatementKind::text, .place = place, .text = take().text});
    } else if (current().type == Token::Type::variable_begin) {
      take();
      Statement print{.kind = StatementKind::print, .place = place};
      print.expressions.push_back(parse_tuple(true, false));
      expect(Token::Type::variable_end);
      body.push_back(std::move(print));
    } else {
      expect(Token::Type::block_begin);
      for (const std::string_view end : ends) {
        if (current().is_name(end)) return body;
      }
      parse_statement(body);
      expect(Token::Type::block_end);
    }
  }
  if (ends.size() > 0)
    fail(fmt::format("the template ends inside a block. Fix: add {{% {} %}}", *(ends.end() - 1)));
  return body;
}

// The body of a block whose opening words are parsed.
Body Parser::parse_block_body(std::initializer_list<std::string_view> ends) {
  skip_symbol(":");
  expect(Token::Type::block_end);
  return parse_body(ends);
}

void Parser::close(std::string_view end) {
  if (!skip_name(end)) fail(fmt::format("expected {{% {} %}}", end));
}

void Parser::parse_statement(Body& body) {
  const Place place = current().place;
  const std::string tag = expect_name();
  const auto add = [&](Statement s) {
    s.place = place;
    body.push_back(std::move(s));
  };
  if (tag == "for") return add(parse_for());
  if (tag == "if") return add(parse_if());
  if (tag == "set") return add(parse_set());
  if (tag == "macro") return add(parse_macro());
  if (tag == "call") return add(parse_call_block());
  if (tag == "filter") return add(parse_filter_block());
  if (tag == "with") return add(parse_with());
  if (tag == "generation") return add(parse_generation());
  if (tag == "print") {
    Statement print{.kind = StatementKind::print, .place = place};
    while (current().type != Token::Type::block_end) {
      if (!print.expressions.empty()) expect_symbol(",");
      print.expressions.push_back(parse_expression());
    }
    return add(std::move(print));
  }
  if (tag == "break" || tag == "continue") {
    if (loops_ == 0) fail(fmt::format("{} stands outside of a loop", tag), &place);
    return add({.kind = tag == "break" ? StatementKind::leave : StatementKind::next, .place = place});
  }
  if (tag == "block" || tag == "extends" || tag == "include" || tag == "import" || tag == "from" ||
      tag == "autoescape") {
    fail(fmt::format(
             "the statement '{}' is not supported: a chat template is one file. Fix: write its content here",
             tag),
         &place);
  }
  fail(
      fmt::format(
          "unknown statement '{}'. Fix: use one of docs/chat.md, or choose another template by data.template "
          "or --template",
          tag),
      &place);
}

Target Parser::parse_single_target(bool attribute) {
  Target target{.place = current().place};
  if (skip_symbol("(")) {
    target = parse_target(true, attribute);
    expect_symbol(")");
    return target;
  }
  const std::string name = expect_name();
  if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
      name == "None") {
    fail(fmt::format("cannot assign to '{}'", name), &target.place);
  }
  target.symbol = symbol(name);
  if (attribute && skip_symbol(".")) {
    target.kind = Target::Kind::attribute;
    target.attribute = expect_name();
  }
  return target;
}

Target Parser::parse_target(bool tuple, bool attribute) {
  const Nesting nesting(*this);
  Target first = parse_single_target(attribute);
  if (!tuple || !current().is_symbol(",")) return first;
  Target result{.kind = Target::Kind::tuple, .place = first.place};
  result.parts.push_back(std::move(first));
  while (skip_symbol(",")) {
    if (current().type != Token::Type::name && !current().is_symbol("(")) break;  // a comma at the end
    if (current().is_name("in")) break;
    result.parts.push_back(parse_single_target(attribute));
  }
  return result;
}

Statement Parser::parse_for() {
  Statement loop{.kind = StatementKind::loop};
  loop.targets.push_back(parse_target(true, false));
  if (!skip_name("in")) fail("expected 'in'");
  loop.expressions.push_back(parse_tuple(false, false));
  loop.expressions.push_back(skip_name("if") ? parse_expression() : nullptr);
  if (current().is_name("recursive"))
    fail("recursive loops are not supported. Fix: use a macro that calls itself");
  symbol("loop");
  ++loops_;
  const std::uint32_t conditions = std::exchange(conditions_, 0);
  loop.body = parse_block_body({"else", "endfor"});
  --loops_;
  if (skip_name("else")) loop.otherwise = parse_block_body({"endfor"});
  conditions_ = conditions;
  close("endfor");
  return loop;
}

Statement Parser::parse_if() {
  Statement condition{.kind = StatementKind::condition};
  do {
    ExpressionPtr test = parse_tuple(false, false);
    ++conditions_;
    condition.branches.emplace_back(std::move(test), parse_block_body({"elif", "else", "endif"}));
    --conditions_;
  } while (skip_name("elif"));
  if (skip_name("else")) {
    ++conditions_;
    condition.otherwise = parse_block_body({"endif"});
    --conditions_;
  }
  close("endif");
  return condition;
}

Statement Parser::parse_set() {
  Statement set{.kind = StatementKind::set};
  set.targets.push_back(parse_target(true, true));
  if (skip_symbol("=")) {
    set.expressions.push_back(parse_tuple(true, false));
    return set;
  }
  set.kind = StatementKind::set_block;
  ExpressionPtr filter;
  while (current().is_symbol("|")) {
    take();
    if (!filter) {
      filter = parse_filter(nullptr);
    } else {
      --at_;
      filter = parse_filter(std::move(filter));
    }
  }
  set.expressions.push_back(std::move(filter));
  set.body = parse_block_body({"endset"});
  close("endset");
  return set;
}

std::vector<Parameter> Parser::parse_signature() {
  std::vector<Parameter> parameters;
  expect_symbol("(");
  while (!current().is_symbol(")")) {
    if (!parameters.empty()) expect_symbol(",");
    std::string name = expect_name();
    const int number = symbol(name);
    for (const Parameter& p : parameters) {
      if (p.name == name) fail(fmt::format("the parameter {} is declared twice", name));
    }
    ExpressionPtr preset = skip_symbol("=") ? parse_expression() : nullptr;
    if (!preset && !parameters.empty() && parameters.back().preset)
      fail("a parameter without a default follows one with a default");
    parameters.push_back({std::move(name), number, std::move(preset)});
  }
  expect_symbol(")");
  return parameters;
}

// A body that is a function: loops and conditions around it do not concern it.
void Parser::parse_macro_body(Statement& macro, std::string_view end) {
  for (const char* hidden : {"caller", "varargs", "kwargs"}) symbol(hidden);
  const std::uint32_t loops = std::exchange(loops_, 0);
  const std::uint32_t conditions = std::exchange(conditions_, 0);
  const std::size_t first = at_;
  macro.body = parse_block_body({end});
  for (std::size_t i = first; i < at_; ++i) {
    macro.uses_varargs |= tokens_[i].is_name("varargs");
    macro.uses_kwargs |= tokens_[i].is_name("kwargs");
    macro.uses_caller |= tokens_[i].is_name("caller");
  }
  loops_ = loops;
  conditions_ = conditions;
  close(end);
}

Statement Parser::parse_macro() {
  Statement macro{.kind = StatementKind::macro};
  macro.text = expect_name();
  macro.symbol = symbol(macro.text);
  macro.parameters = parse_signature();
  parse_macro_body(macro, "endmacro");
  return macro;
}

Statement Parser::parse_call_block() {
  Statement block{.kind = StatementKind::call_block};
  block.text = "caller";
  if (current().is_symbol("(")) block.parameters = parse_signature();
  block.expressions.push_back(parse_expression());
  if (block.expressions[0]->kind != Expression::Kind::call) fail("expected a call after 'call'");
  parse_macro_body(block, "endcall");
  return block;
}

Statement Parser::parse_filter_block() {
  Statement block{.kind = StatementKind::filter_block};
  ExpressionPtr filter = parse_filter(nullptr);
  while (current().is_symbol("|")) filter = parse_filter(std::move(filter));
  block.expressions.push_back(std::move(filter));
  block.body = parse_block_body({"endfilter"});
  close("endfilter");
  return block;
}

Statement Parser::parse_with() {
  Statement with{.kind = StatementKind::with};
  while (current().type != Token::Type::block_end) {
    if (!with.targets.empty()) expect_symbol(",");
    with.targets.push_back(parse_target(true, false));
    expect_symbol("=");
    with.expressions.push_back(parse_expression());
  }
  with.body = parse_block_body({"endwith"});
  close("endwith");
  return with;
}

Statement Parser::parse_generation() {
  Statement block{.kind = StatementKind::generation};
  const std::uint32_t loops = std::exchange(loops_, 0);
  block.body = parse_block_body({"endgeneration"});
  loops_ = loops;
  close("endgeneration");
  return block;
}

}  // namespace mantissa::chat
