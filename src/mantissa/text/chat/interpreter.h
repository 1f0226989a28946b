// Runs a parsed template.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/ast.h"
#include "mantissa/text/chat/format.h"
#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

/// The variables of a block, inside of those of the blocks around it.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer_) : outer(std::move(outer_)) {}
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<int, Value>> variables;  // by the number of the name

  void set(int symbol, Value value);
  const Value* find(int symbol) const;  // here or around, or null
};

class Interpreter {
 public:
  Interpreter(const Program& program, const Limits& limits, std::function<LocalTime()> clock);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Meter& meter() { return meter_; }
  LocalTime now() const { return clock_(); }
  /// Sets a variable of the conversation. Names that the template does not use are ignored.
  void define(std::string_view name, const nlohmann::ordered_json& value);
  /// Runs the template and returns the text.
  std::string run();
  /// Returns the byte ranges of the text that `generation` blocks wrote.
  const std::vector<std::pair<std::size_t, std::size_t>>& generations() const { return generations_; }
  /// Returns true if a generation block ran where its place in the text is unknown: inside a macro or a `set`
  /// block.
  bool lost_generation() const { return lost_generation_; }

  // For filters and functions. Each throws a Fault or a TemplateError.
  Value call(const Value& callee, Arguments& arguments);
  Value apply_filter(const std::string& name, const Value& input, Arguments& arguments);
  bool apply_test(const std::string& name, const Value& input, Arguments& arguments);
  Value make_namespace();

 private:
  friend class Macro;
  friend class CurrentScope;
  enum class Flow { on, leave, next };

  // ---- statements (interpreter.cpp) ----
  Flow run_body(const Body& body);
  Flow run_statement(const Statement& s);
  Flow run_loop(const Statement& s);
  bool run_loop_body(const Statement& s, const std::shared_ptr<class LoopState>& loop,
                     const std::shared_ptr<Scope>& outer);
  Flow run_condition(const Statement& s);
  Flow run_set_block(const Statement& s);
  void run_call_block(const Statement& s);
  Flow run_filter_block(const Statement& s);
  Flow run_with(const Statement& s);
  void run_generation(const Statement& s);
  Value define_macro(const Statement& s);
  Value call_macro(const Statement& s, const std::shared_ptr<Scope>& scope, Arguments& arguments);
  /// Runs a body whose output goes to `captured`.
  Flow capture(const Body& body, std::string& captured);
  void assign(const Target& target, const Value& value);
  void write(const Value& value);

  // ---- expressions (evaluate.cpp) ----
  Value evaluate(const Expression& e);
  Value evaluate_plain(const Expression& e);
  Value evaluate_name(const Expression& e);
  Value evaluate_dict(const Expression& e);
  Value evaluate_slice(const Expression& e);
  Value evaluate_conditional(const Expression& e);
  Value evaluate_compare(const Expression& e);
  Value evaluate_concatenation(const Expression& e);
  Value evaluate_filter(const Expression& e, const Value* input);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Arguments evaluate_arguments(const CallArguments& a);
  [[noreturn]] void fail(Place place, const std::string& message) const;

  const Program& program_;
  Meter meter_;
  std::function<LocalTime()> clock_;
  std::shared_ptr<Scope> scope_;
  std::string text_;           // the rendered text
  std::string* out_ = &text_;  // where output goes: the text, or what a block captures
  std::vector<std::pair<std::size_t, std::size_t>> generations_;
  bool lost_generation_ = false;
  bool in_generation_ = false;
  // Values that could hold themselves, to be emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> macro_scopes_;
};

/// Returns the global function of this name, or null.
std::optional<Value> find_global(std::string_view name);

}  // namespace mantissa::chat
