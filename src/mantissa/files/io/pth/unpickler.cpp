// https://github.com/python/cpython/blob/main/Lib/pickletools.py describes the opcodes.
#include <fmt/format.h>

#include <charconv>
#include <unordered_map>

#include "mantissa/core/base/printable.h"
#include "mantissa/files/io/pth/calls.h"
#include "mantissa/files/io/pth/pickle_bytes.h"

namespace mantissa::io::pth {
namespace {

using Kind = Value::Kind;

constexpr std::size_t kLargestPickle = 64 << 20, kDeepestStack = 1 << 22;

class Unpickler : PickleBytes {
 public:
  Unpickler(std::span<const std::byte> bytes, const std::string& where)
      : PickleBytes(bytes, where), calls_(pickle_, where) {
    if (bytes.size() > kLargestPickle) fail("its pickle has more than 64 MiB");
    constant_[0] = calls_.add(Kind::none);
    constant_[1] = calls_.add(Kind::boolean);
    constant_[2] = calls_.add(Kind::boolean);
    constant_[2]->integer = 1;
    other_ = calls_.add(Kind::other);
  }

  Pickle run() {
    while (true) {
      const auto op = static_cast<unsigned char>(number<std::uint8_t>());
      if (op == '.') break;
      if (!constant(op) && !text(op) && !container(op) && !memo(op)) object(op);
      if (stack_.size() + marks_.size() > kDeepestStack) fail("its pickle nests too deeply");
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  // ---- the stack

  void push(Value* value) { stack_.push_back(value); }
  void push_integer(std::int64_t x) {
    push(calls_.add(Kind::integer));
    stack_.back()->integer = x;
  }
  void push_text(Kind kind, std::string_view text) {
    push(calls_.add(kind));
    stack_.back()->text = text;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Value* top() const {
    if (stack_.size() <= floor()) fail("its pickle takes more values than it has");
    return stack_.back();
  }
  Value* pop() {
    Value* value = top();
    stack_.pop_back();
    return value;
  }
  std::vector<Value*> pop_to_mark() {
    if (marks_.empty()) fail("its pickle has no mark where one is needed");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Value*> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }

  // ---- the opcodes, by kind; each function returns false for those of others

  bool constant(unsigned char op) {
    switch (op) {
      case 'N':
        push(constant_[0]);
        return true;
      case 0x88:  // NEWTRUE
        push(constant_[2]);
        return true;
      case 0x89:  // NEWFALSE
        push(constant_[1]);
        return true;
      case 'J':
        push_integer(number<std::int32_t>());
        return true;
      case 'K':
        push_integer(number<std::uint8_t>());
        return true;
      case 'M':
        push_integer(number<std::uint16_t>());
        return true;
      case 'I':
      case 'L':
        decimal(line());
        return true;
      case 0x8a:  // LONG1
        binary_integer(number<std::uint8_t>());
        return true;
      case 0x8b:  // LONG4
        binary_integer(number<std::uint32_t>());
        return true;
      case 'G':
        take(sizeof(double));
        push(other_);
        return true;
      case 'F':
        line();
        push(other_);
        return true;
      default:
        return false;
    }
  }

  /// INT and LONG: "12", "12L", and "00" and "01" for booleans.
  void decimal(std::string_view digits) {
    if (digits == "00" || digits == "01") return push(constant_[digits == "01" ? 2 : 1]);
    if (digits.ends_with('L')) digits.remove_suffix(1);
    std::int64_t x = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), x);
    if (error == std::errc::result_out_of_range) return push(other_);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail("its pickle has an integer without digits");
    push_integer(x);
  }

  /// A two's complement integer. One of more than 64 bits is never a size.
  void binary_integer(std::uint32_t size) {
    const std::string_view digits = take(size);
    if (size > sizeof(std::int64_t)) return push(other_);
    std::uint64_t x = !digits.empty() && (digits.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = size; i-- > 0;) x = x << 8U | static_cast<unsigned char>(digits[i]);
    push_integer(static_cast<std::int64_t>(x));
  }

  bool text(unsigned char op) {
    switch (op) {
      case 'X':
        push_text(Kind::text, take(number<std::uint32_t>()));
        return true;
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // a string of Python 2
        push_text(Kind::text, take(number<std::uint8_t>()));
        return true;
      case 0x8d:  // BINUNICODE8
        push_text(Kind::text, take(number<std::uint64_t>()));
        return true;
      case 'T':
        push_text(Kind::text, take(number<std::uint32_t>()));
        return true;
      case 'V':
        push_text(Kind::text, line());
        return true;
      case 'S':
        push_text(Kind::text, unquoted(line()));
        return true;
      case 'B':
        push_text(Kind::bytes, take(number<std::uint32_t>()));
        return true;
      case 'C':
        push_text(Kind::bytes, take(number<std::uint8_t>()));
        return true;
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        push_text(Kind::bytes, take(number<std::uint64_t>()));
        return true;
      default:
        return false;
    }
  }

  std::string_view unquoted(std::string_view quoted) const {
    const bool in_quotes = quoted.size() >= 2 && quoted.front() == quoted.back() &&
                           (quoted.front() == '\'' || quoted.front() == '"');
    if (!in_quotes) fail("its pickle has a string without quotes");
    return quoted.substr(1, quoted.size() - 2);
  }

  bool container(unsigned char op) {
    switch (op) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        push(calls_.add(Kind::tuple));
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        tuple(op - std::size_t{0x84});
        return true;
      case 't':
        collect(Kind::tuple);
        return true;
      case ']':
        push(calls_.add(Kind::list));
        return true;
      case 'l':
        collect(Kind::list);
        return true;
      case 'a': {
        Value* item = pop();
        extend(Kind::list, {item});
        return true;
      }
      case 'e':
        extend(Kind::list, pop_to_mark());
        return true;
      case '}':
        push(calls_.add(Kind::dict));
        return true;
      case 'd':
        collect(Kind::dict);
        return true;
      case 's': {
        Value* value = pop();
        Value* key = pop();
        extend(Kind::dict, {key, value});
        return true;
      }
      case 'u':
        extend(Kind::dict, pop_to_mark());
        return true;
      case 0x8f:  // EMPTY_SET
        push(calls_.add(Kind::set));
        return true;
      case 0x90:  // ADDITEMS
        extend(Kind::set, pop_to_mark());
        return true;
      case 0x91:  // FROZENSET
        collect(Kind::set);
        return true;
      default:
        return false;
    }
  }

  void tuple(std::size_t size) {
    std::vector<Value*> items(size);
    for (std::size_t i = size; i-- > 0;) items[i] = pop();
    push(calls_.add(Kind::tuple));
    stack_.back()->items = std::move(items);
  }

  void collect(Kind kind) {
    std::vector<Value*> items = pop_to_mark();
    push(calls_.add(kind));
    extend(kind, items);
  }

  void extend(Kind kind, const std::vector<Value*>& items) {
    Value* to = top();
    if (to->kind != kind && !(kind == Kind::dict && to->is_dict()))
      fail("its pickle adds items to a value that cannot have them");
    if (kind == Kind::dict && items.size() % 2 != 0) fail("its pickle has a dict with a key without a value");
    to->items.insert(to->items.end(), items.begin(), items.end());
  }

  bool memo(unsigned char op) {
    switch (op) {
      case 'p':
        put(index_in_line());
        return true;
      case 'q':
        put(number<std::uint8_t>());
        return true;
      case 'r':
        put(number<std::uint32_t>());
        return true;
      case 0x94:  // MEMOIZE
        put(static_cast<std::uint32_t>(memo_.size()));
        return true;
      case 'g':
        get(index_in_line());
        return true;
      case 'h':
        get(number<std::uint8_t>());
        return true;
      case 'j':
        get(number<std::uint32_t>());
        return true;
      default:
        return false;
    }
  }

  void put(std::uint32_t index) {
    memo_[index] = top();
    if (memo_.size() > kDeepestStack) fail("its pickle has more than 4194304 entries in its memo");
  }
  void get(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end())
      fail(fmt::format("its pickle needs entry {} of its memo, which it has not set", index));
    push(found->second);
  }

  void object(unsigned char op) {
    switch (op) {
      case 0x80:  // PROTO
        if (const auto protocol = number<std::uint8_t>(); protocol > 5)
          fail(fmt::format("its pickle has protocol {}, but 5 is the highest that is read", protocol));
        return;
      case 0x95:  // FRAME
        number<std::uint64_t>();
        return;
      case '0':
        pop();
        return;
      case '1':
        pop_to_mark();
        return;
      case '2':
        push(top());
        return;
      case 'c': {
        const std::string_view module = line(), name = line();
        return push(calls_.global(module, name));
      }
      case 0x93: {  // STACK_GLOBAL
        const Value *name = pop(), *module = pop();
        if (name->kind != Kind::text || module->kind != Kind::text)
          fail("its pickle has a global without a name");
        return push(calls_.global(module->text, name->text));
      }
      case 'i': {  // INST
        const std::string_view module = line(), name = line();
        calls_.global(module, name);
        fail(fmt::format("its pickle makes an instance of {}",
                         name_in_quotes(fmt::format("{}.{}", module, name))));
      }
      case 'R': {
        const Value *arguments = pop(), *callable = pop();
        return push(calls_.call(*callable, *arguments));
      }
      case 'b': {
        const Value* state = pop();
        if (top()->kind != Kind::ordered_dict || !state->is_dict())
          fail("its pickle sets attributes of a value that is not an OrderedDict");
        return;  // the attribute _metadata: versions of the modules
      }
      case 'Q':
        return push(calls_.storage(*pop()));
      default:
        fail(fmt::format("its pickle has the opcode 0x{:02x}, which a state dict does not need", op));
    }
  }

  Pickle pickle_;
  Calls calls_;
  std::vector<Value*> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint32_t, Value*> memo_;
  Value* constant_[3] = {};  // None, False, True
  Value* other_ = nullptr;
};

}  // namespace

Pickle parse_pickle(std::span<const std::byte> bytes, const std::string& where) {
  return Unpickler(bytes, where).run();
}

}  // namespace mantissa::io::pth
