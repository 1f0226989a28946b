// Parses printed puzzles and evaluates their statements without the generator's code.
#pragma once

#include <cctype>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::text {

/// A statement of a row's field `statements`: "('or', ('lying', 1), ('telling-truth', 0))".
struct ParsedStatement {
  std::string op;
  int person = -1;
  std::vector<ParsedStatement> parts;

  bool truth(std::uint32_t knights) const {
    if (op == "telling-truth") return (knights >> person & 1U) == 1;
    if (op == "lying") return (knights >> person & 1U) == 0;
    const bool a = parts.at(0).truth(knights);
    if (op == "not") return !a;
    const bool b = parts.at(1).truth(knights);
    if (op == "and") return a && b;
    if (op == "or") return a || b;
    if (op == "->") return !a || b;
    if (op == "<=>") return a == b;
    throw std::runtime_error("no such operation: " + op);
  }

  void people(std::vector<int>& all) const {
    if (parts.empty()) all.push_back(person);
    for (const ParsedStatement& part : parts) part.people(all);
  }
};

class TupleParser {
 public:
  explicit TupleParser(std::string_view text) : text_(text) {}

  std::vector<ParsedStatement> statements() {
    std::vector<ParsedStatement> all;
    expect('(');
    do {
      all.push_back(statement());
    } while (accept(','));
    expect(')');
    if (at_ != text_.size()) throw std::runtime_error("text after the statements");
    return all;
  }

 private:
  ParsedStatement statement() {
    ParsedStatement s;
    expect('(');
    expect('\'');
    while (text_.at(at_) != '\'') s.op += text_.at(at_++);
    ++at_;
    while (accept(',')) {
      if (std::isdigit(static_cast<unsigned char>(text_.at(at_))) != 0) {
        s.person = text_.at(at_++) - '0';
      } else {
        s.parts.push_back(statement());
      }
    }
    expect(')');
    return s;
  }
  bool accept(char c) {
    if (text_.at(at_) != c) return false;
    ++at_;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) throw std::runtime_error(std::string("expected ") + c + " at " + std::to_string(at_));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// Returns every assignment of roles in which exactly the knights' statements are true.
inline std::vector<std::uint32_t> brute_force(const std::vector<ParsedStatement>& statements) {
  std::vector<std::uint32_t> found;
  for (std::uint32_t knights = 0; knights >> statements.size() == 0; ++knights) {
    bool fits = true;
    for (std::size_t i = 0; i < statements.size(); ++i) {
      fits = fits && statements[i].truth(knights) == ((knights >> i & 1U) == 1);
    }
    if (fits) found.push_back(knights);
  }
  return found;
}

}  // namespace mantissa::text
