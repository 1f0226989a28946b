// The statements of Interpreter.
#include "mantissa/text/chat/interpreter.h"

#include <fmt/format.h>

#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/loop.h"
#include "mantissa/text/chat/print.h"

namespace mantissa::chat {

using StatementKind = Statement::Kind;

void Scope::set(int symbol, Value value) {
  for (auto& [number, old] : variables) {
    if (number == symbol) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(symbol, std::move(value));
}

const Value* Scope::find(int symbol) const {
  for (const Scope* scope = this; scope; scope = scope->outer.get()) {
    for (const auto& [number, value] : scope->variables) {
      if (number == symbol) return &value;
    }
  }
  return nullptr;
}

/// Makes a scope current for its lifetime.
class CurrentScope {
 public:
  CurrentScope(Interpreter& in, std::shared_ptr<Scope> scope) : in_(in), before_(std::move(in.scope_)) {
    in.meter_.allocate(sizeof(Scope) + 64);
    in.scope_ = std::move(scope);
  }
  ~CurrentScope() { in_.scope_ = std::move(before_); }
  CurrentScope(const CurrentScope&) = delete;
  CurrentScope& operator=(const CurrentScope&) = delete;

 private:
  Interpreter& in_;
  std::shared_ptr<Scope> before_;
};

/// A macro, or the body of a call block, with the scope that it was defined in.
class Macro : public Object {
 public:
  Macro(const Statement& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}
  std::string_view type() const override { return "Macro"; }
  std::string repr(Meter&) const override { return fmt::format("<Macro {}>", repr_text(definition_.text)); }
  bool callable() const override { return true; }
  Value call(Interpreter& in, Arguments& arguments) override {
    return in.call_macro(definition_, scope_, arguments);
  }
  std::optional<Value> attribute(Interpreter& in, std::string_view name) override {
    if (name == "name") return make_text(in.meter(), definition_.text);
    return std::nullopt;
  }

 private:
  const Statement& definition_;
  std::shared_ptr<Scope> scope_;
};

Interpreter::Interpreter(const Program& program, const Limits& limits, std::function<LocalTime()> clock)
    : program_(program), meter_(limits), clock_(std::move(clock)), scope_(std::make_shared<Scope>(nullptr)) {}

Interpreter::~Interpreter() {
  for (const auto& scope : macro_scopes_) scope->variables.clear();
  for (const auto& space : namespaces_) space->attributes.clear();
}

void Interpreter::fail(Place place, const std::string& message) const {
  throw TemplateError(program_.name, place, message);
}

void Interpreter::define(std::string_view name, const nlohmann::ordered_json& value) {
  const int symbol = program_.symbol(name);
  if (symbol < 0) return;
  try {
    scope_->set(symbol, from_json(value, meter_));
  } catch (const Fault& f) {
    throw TemplateError(program_.name, {}, fmt::format("{}: {}", name, f.what()));
  }
}

std::string Interpreter::run() {
  for (const int symbol : program_.hidden) {
    scope_->set(symbol, make_undefined(fmt::format("'{}' is undefined",
                                                   program_.symbols[static_cast<std::size_t>(symbol)])));
  }
  run_body(program_.body);
  return std::move(text_);
}

Value Interpreter::make_namespace() {
  meter_.allocate(128);
  namespaces_.push_back(std::make_shared<Namespace>());
  return Value(std::shared_ptr<Object>(namespaces_.back()));
}

void Interpreter::write(const Value& value) {
  if (const Text* t = value.text()) {
    meter_.allocate(t->bytes.size());
    *out_ += t->bytes;
  } else {
    *out_ += str(value, meter_);
  }
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  for (const Statement& s : body) {
    const Flow flow = run_statement(s);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::run_statement(const Statement& s) {
  try {
    const Meter::Nested nested(meter_);
    meter_.step();
    switch (s.kind) {
      case StatementKind::text:
        meter_.allocate(s.text.size());
        *out_ += s.text;
        return Flow::on;
      case StatementKind::print:
        for (const auto& e : s.expressions) write(evaluate(*e));
        return Flow::on;
      case StatementKind::loop:
        return run_loop(s);
      case StatementKind::condition:
        return run_condition(s);
      case StatementKind::set:
        assign(s.targets[0], evaluate(*s.expressions[0]));
        return Flow::on;
      case StatementKind::set_block:
        return run_set_block(s);
      case StatementKind::macro:
        scope_->set(s.symbol, define_macro(s));
        return Flow::on;
      case StatementKind::call_block:
        run_call_block(s);
        return Flow::on;
      case StatementKind::filter_block:
        return run_filter_block(s);
      case StatementKind::with:
        return run_with(s);
      case StatementKind::generation:
        run_generation(s);
        return Flow::on;
      case StatementKind::leave:
        return Flow::leave;
      case StatementKind::next:
        return Flow::next;
    }
    return Flow::on;
  } catch (const Fault& f) {
    fail(s.place, f.what());
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::name:
      meter_.allocate(sizeof(Value));
      scope_->set(target.symbol, value);
      return;
    case Target::Kind::attribute: {
      const Value* object = scope_->find(target.symbol);
      auto* space = object ? object->as<Namespace>() : nullptr;
      if (!space)
        fail(target.place,
             "only a namespace has attributes that can be set. Fix: create it with namespace()");
      meter_.allocate(sizeof(Value) + target.attribute.size());
      space->set(target.attribute, value);
      return;
    }
    case Target::Kind::tuple: {
      const std::vector<Value> values = elements(value, meter_);
      if (values.size() != target.parts.size()) {
        fail(target.place,
             fmt::format("{} values cannot be assigned to {} names", values.size(), target.parts.size()));
      }
      for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
      return;
    }
  }
}

Interpreter::Flow Interpreter::run_loop(const Statement& s) {
  const Value iterable = evaluate(*s.expressions[0]);
  std::shared_ptr<Iterator> iterator = iterate(iterable, meter_);
  std::optional<std::size_t> length = length_of(iterable);
  const std::shared_ptr<Scope> outer = scope_;
  if (const Expression* test = s.expressions[1].get()) {
    length.reset();
    const std::uint32_t depth = iterator->depth;
    iterator = std::make_shared<Iterator>(
        [this, &s, test, outer, source = std::move(iterator)]() -> std::optional<Value> {
          while (auto next = source->next()) {
            const CurrentScope current(*this, std::make_shared<Scope>(outer));
            assign(s.targets[0], *next);
            if (truth(evaluate(*test))) return next;
          }
          return std::nullopt;
        },
        depth);
  }
  const auto loop = std::make_shared<LoopState>(std::move(iterator), length, meter_);
  if (run_loop_body(s, loop, outer)) return Flow::on;
  const CurrentScope current(*this, std::make_shared<Scope>(outer));
  return run_body(s.otherwise);
}

// As in Jinja, `else` runs unless an iteration reaches its end, without break or continue.
bool Interpreter::run_loop_body(const Statement& s, const std::shared_ptr<LoopState>& loop,
                                const std::shared_ptr<Scope>& outer) {
  const int loop_symbol = program_.symbol("loop");
  const std::unique_ptr<LoopState, void (*)(LoopState*)> finished(loop.get(),
                                                                  [](LoopState* l) { l->finish(); });
  bool completed = false;
  while (loop->advance()) {
    meter_.step();
    const CurrentScope current(*this, std::make_shared<Scope>(outer));
    assign(s.targets[0], loop->current());
    scope_->set(loop_symbol, Value(std::shared_ptr<Object>(loop)));
    const Flow flow = run_body(s.body);
    if (flow == Flow::leave) break;
    completed |= flow == Flow::on;
  }
  return completed;
}

Interpreter::Flow Interpreter::run_condition(const Statement& s) {
  for (const auto& [test, body] : s.branches) {
    if (truth(evaluate(*test))) return run_body(body);
  }
  return run_body(s.otherwise);
}

Interpreter::Flow Interpreter::capture(const Body& body, std::string& captured) {
  std::string* const before = std::exchange(out_, &captured);
  try {
    const Flow flow = run_body(body);
    out_ = before;
    return flow;
  } catch (...) {
    out_ = before;
    throw;
  }
}

// A break or continue inside drops the block.
Interpreter::Flow Interpreter::run_set_block(const Statement& s) {
  Value value;
  {
    const CurrentScope current(*this, std::make_shared<Scope>(scope_));
    std::string captured;
    if (const Flow flow = capture(s.body, captured); flow != Flow::on) return flow;
    value = make_text(meter_, std::move(captured));
    if (s.expressions[0]) value = evaluate_filter(*s.expressions[0], &value);
  }
  assign(s.targets[0], value);
  return Flow::on;
}

Interpreter::Flow Interpreter::run_filter_block(const Statement& s) {
  const CurrentScope current(*this, std::make_shared<Scope>(scope_));
  std::string captured;
  if (const Flow flow = capture(s.body, captured); flow != Flow::on) return flow;
  const Value text = make_text(meter_, std::move(captured));
  write(evaluate_filter(*s.expressions[0], &text));
  return Flow::on;
}

Interpreter::Flow Interpreter::run_with(const Statement& s) {
  const std::vector<Value> values = evaluate_all(s.expressions);
  const CurrentScope current(*this, std::make_shared<Scope>(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(s.targets[i], values[i]);
  return run_body(s.body);
}

void Interpreter::run_generation(const Statement& s) {
  const CurrentScope current(*this, std::make_shared<Scope>(scope_));
  if (in_generation_) {
    run_body(s.body);
    return;
  }
  if (out_ != &text_) lost_generation_ = true;
  const std::size_t start = text_.size();
  in_generation_ = true;
  run_body(s.body);
  in_generation_ = false;
  if (out_ == &text_) generations_.emplace_back(start, text_.size());
}

Value Interpreter::define_macro(const Statement& s) {
  meter_.allocate(128);
  macro_scopes_.push_back(scope_);
  return Value(std::shared_ptr<Object>(std::make_shared<Macro>(s, scope_)));
}

void Interpreter::run_call_block(const Statement& s) {
  const Expression& call_expression = *s.expressions[0];
  const Value callee = evaluate(*call_expression.operands[0]);
  Arguments arguments = evaluate_arguments(call_expression.arguments);
  arguments.named.emplace_back("caller", define_macro(s));
  write(call(callee, arguments));
}

Value Interpreter::call_macro(const Statement& s, const std::shared_ptr<Scope>& scope, Arguments& arguments) {
  const Meter::Nested nested(meter_);
  const CurrentScope current(*this, std::make_shared<Scope>(scope));
  std::vector<std::optional<Value>> given(s.parameters.size());
  const std::size_t positional = std::min(given.size(), arguments.positional.size());
  for (std::size_t i = 0; i < positional; ++i) given[i] = arguments.positional[i];
  bool explicit_caller = false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    explicit_caller |= s.parameters[i].name == "caller";
    if (i >= positional) given[i] = arguments.take(s.parameters[i].name);
  }
  if (s.uses_caller && !explicit_caller) {
    auto caller = arguments.take("caller");
    scope_->set(program_.symbol("caller"),
                caller && !caller->is_none() ? *caller : make_undefined("No caller defined"));
  }
  if (s.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : arguments.named) rest.set(make_text(meter_, name), std::move(value), meter_);
    scope_->set(program_.symbol("kwargs"), make_dict(meter_, std::move(rest)));
  } else if (!arguments.named.empty()) {
    throw Fault("macro '{}' has no parameter '{}'", s.text, arguments.named[0].first);
  }
  if (s.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(positional),
                            arguments.positional.end());
    scope_->set(program_.symbol("varargs"), make_tuple(meter_, std::move(rest)));
  } else if (arguments.positional.size() > positional) {
    throw Fault("macro '{}' takes at most {} arguments", s.text, given.size());
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i]) scope_->set(s.parameters[i].symbol, *given[i]);
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (given[i]) continue;
    const Parameter& p = s.parameters[i];
    scope_->set(p.symbol, p.preset ? evaluate(*p.preset)
                                   : make_undefined(fmt::format("parameter '{}' was not provided", p.name)));
  }
  std::string captured;
  capture(s.body, captured);
  return make_text(meter_, std::move(captured));
}

}  // namespace mantissa::chat
