// Parses templates. The grammar is Jinja's, without inheritance, imports and recursive loops.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "mantissa/text/chat/ast.h"
#include "mantissa/text/chat/lexer.h"

namespace mantissa::chat {

/// Parses a template, whose name appears in errors. Throws a TemplateError.
std::shared_ptr<const Program> parse_template(std::string_view source, std::string name);

class Parser {
 public:
  Parser(std::string_view source, std::string name);
  std::shared_ptr<const Program> run();

 private:
  // ---- tokens ----
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  std::string expect_name();
  void expect(Token::Type type);
  [[noreturn]] void fail(const std::string& message, const Place* place = nullptr) const;
  int symbol(const std::string& name);

  // ---- statements (parser.cpp) ----
  Body parse_body(std::initializer_list<std::string_view> ends);
  Body parse_block_body(std::initializer_list<std::string_view> ends);
  void parse_statement(Body& body);
  Statement parse_for();
  Statement parse_if();
  Statement parse_set();
  Statement parse_macro();
  Statement parse_call_block();
  Statement parse_filter_block();
  Statement parse_with();
  Statement parse_generation();
  std::vector<Parameter> parse_signature();
  void parse_macro_body(Statement& macro, std::string_view end);
  Target parse_target(bool tuple, bool attribute);
  Target parse_single_target(bool attribute);
  void close(std::string_view end);

  // ---- expressions (parse_expression.cpp) ----
  ExpressionPtr parse_expression(bool conditional = true);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_postfix(ExpressionPtr e);
  ExpressionPtr parse_filters(ExpressionPtr e);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr e);
  ExpressionPtr parse_subscript(ExpressionPtr e);
  ExpressionPtr parse_call(ExpressionPtr e);
  CallArguments parse_arguments();
  ExpressionPtr parse_tuple(bool conditional, bool parentheses);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  std::string parse_dotted_name();
  ExpressionPtr node(Expression::Kind kind, Place place, std::vector<ExpressionPtr> operands = {});
  ExpressionPtr constant(Place place, Value value);
  /// Limits the depth of a tree, so that no walk over it can exhaust the stack.
  ExpressionPtr measured(ExpressionPtr e) const;

  class Nesting;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
  std::unordered_map<std::string, int> symbols_;
  Meter meter_;
  std::uint32_t nesting_ = 0;
  std::uint32_t loops_ = 0;       // around the current statement, within its macro
  std::uint32_t conditions_ = 0;  // likewise
};

/// Counts one level of brackets or blocks for its lifetime.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& p) : parser_(p) {
    constexpr std::uint32_t kMost = 150;
    if (parser_.nesting_ >= kMost) parser_.fail("the template is nested too deeply. Fix: simplify it");
    ++parser_.nesting_;
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace mantissa::chat
