#include "mantissa/text/chat/hidden_names.h"

#include <map>

namespace mantissa::chat {

namespace {

// The uses of names in one level. Nested levels (loops, macros, captured blocks) have their own.
class LevelNames {
 public:
  std::map<int, bool> hidden;  // the names that are used, and whether the first use is an assignment

  void read(const Expression* e) {
    if (!e) return;
    if (e->kind == Expression::Kind::name) hidden.try_emplace(e->symbol, false);
    for (const auto& operand : e->operands) read(operand.get());
    for (const auto& argument : e->arguments.positional) read(argument.get());
    for (const auto& [name, argument] : e->arguments.named) read(argument.get());
    read(e->arguments.rest.get());
    read(e->arguments.named_rest.get());
  }

  void assign(const Target& target) {
    for (const Target& part : target.parts) assign(part);
    if (target.kind != Target::Kind::tuple)
      hidden.try_emplace(target.symbol, target.kind == Target::Kind::name);
  }

  void visit(const Body& body) {
    for (const Statement& s : body) visit(s);
  }

 private:
  void visit(const Statement& s) {
    using Kind = Statement::Kind;
    switch (s.kind) {
      case Kind::condition:
        visit_condition(s);
        return;
      case Kind::macro:
        hidden.try_emplace(s.symbol, true);
        return;
      case Kind::loop:
        read(s.expressions[0].get());
        return;
      case Kind::set:
        read(s.expressions[0].get());
        assign(s.targets[0]);
        return;
      case Kind::set_block:
        assign(s.targets[0]);
        return;
      default:
        for (const auto& e : s.expressions) read(e.get());
    }
  }

  // A name that only some branches assign is not hidden. Jinja counts three: if, all of elif together, and
  // else.
  void visit_condition(const Statement& s) {
    read(s.branches[0].first.get());
    LevelNames branches[3] = {*this, *this, *this};
    branches[0].visit(s.branches[0].second);
    for (std::size_t i = 1; i < s.branches.size(); ++i) {
      branches[1].read(s.branches[i].first.get());
      branches[1].visit(s.branches[i].second);
    }
    branches[2].visit(s.otherwise);
    const auto before = hidden;
    for (const LevelNames& branch : branches) {
      for (const auto& [name, assigned] : branch.hidden) {
        if (before.contains(name)) continue;
        bool everywhere = true;
        for (const LevelNames& other : branches) {
          const auto found = other.hidden.find(name);
          everywhere = everywhere && found != other.hidden.end() && found->second;
        }
        hidden[name] = everywhere;
      }
    }
  }
};

}  // namespace

std::vector<int> hidden_names(const Body& body) {
  LevelNames level;
  level.visit(body);
  std::vector<int> names;
  for (const auto& [name, assigned] : level.hidden) {
    if (assigned) names.push_back(name);
  }
  return names;
}

}  // namespace mantissa::chat
