// Mutants of pickles: operations are removed, repeated, exchanged or changed, and lengths follow their
// arguments.
#include <algorithm>

#include "mutate.h"

namespace mantissa::fuzz {
namespace {

/// What follows an opcode: `fixed` bytes, or a length of `length` bytes and as many bytes, or `lines`.
struct Form {
  std::uint8_t fixed = 0, length = 0, lines = 0;
};

// https://github.com/python/cpython/blob/main/Lib/pickletools.py
std::optional<Form> form_of(char code) {
  switch (code) {
    case 'K':
    case 'h':
    case 'q':
    case '\x80':
    case '\x82':
      return Form{.fixed = 1};
    case 'M':
    case '\x83':
      return Form{.fixed = 2};
    case 'J':
    case 'j':
    case 'r':
    case '\x84':
      return Form{.fixed = 4};
    case 'G':
    case '\x95':
      return Form{.fixed = 8};
    case 'U':
    case 'C':
    case '\x8a':
    case '\x8c':
      return Form{.length = 1};
    case 'T':
    case 'X':
    case 'B':
    case '\x8b':
      return Form{.length = 4};
    case '\x8d':
    case '\x8e':
    case '\x96':
      return Form{.length = 8};
    case 'c':
    case 'i':
      return Form{.lines = 2};
    case 'I':
    case 'F':
    case 'L':
    case 'V':
    case 'S':
    case 'P':
    case 'g':
    case 'p':
      return Form{.lines = 1};
    default: {
      static constexpr std::string_view kAlone =
          "().012NQRabdelostu}]\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98";
      return kAlone.find(code) == std::string_view::npos ? std::nullopt : std::optional(Form{});
    }
  }
}

struct Operation {
  char code = 'N';
  std::string argument;
};

constexpr char kFrame = '\x95';  // its length is that of the operations after it; it is optional

std::optional<std::vector<Operation>> parse(std::string_view in) {
  std::vector<Operation> operations;
  while (!in.empty()) {
    Operation next{in.front(), {}};
    in.remove_prefix(1);
    const auto form = form_of(next.code);
    if (!form) return std::nullopt;
    std::uint64_t size = form->fixed;
    for (std::size_t line = 0, end = 0; line < form->lines; ++line) {
      end = in.find('\n', end);
      if (end == std::string_view::npos) return std::nullopt;
      size = ++end;
    }
    if (form->length > 0) {
      if (in.size() < form->length) return std::nullopt;
      for (std::size_t i = 0; i < form->length; ++i)
        size |= std::uint64_t{static_cast<std::uint8_t>(in[i])} << (8 * i);
      in.remove_prefix(form->length);
    }
    auto argument = take_bytes(in, size);
    if (!argument) return std::nullopt;
    next.argument = std::move(*argument);
    if (next.code != kFrame) operations.push_back(std::move(next));
    if (operations.size() > 1 && operations.back().code == '.') break;
  }
  return operations;
}

std::string write(const std::vector<Operation>& operations) {
  std::string out;
  for (const Operation& operation : operations) {
    out += operation.code;
    const Form form = form_of(operation.code).value_or(Form{});
    for (std::size_t i = 0; i < form.length; ++i)
      out += static_cast<char>(static_cast<std::uint8_t>(operation.argument.size() >> (8 * i)));
    out += operation.argument;
  }
  return out;
}

void change(Operation& operation, Random& random) {
  static constexpr std::string_view kCodes =
      "().0NQRabdestu}]KMJhqXcg\x85\x86\x87\x88\x89\x8a\x8c\x8f\x90\x93\x94";
  static constexpr std::string_view kGlobals[] = {"torch\nFloatStorage\n",
                                                  "torch\nBFloat16Storage\n",
                                                  "torch.storage\nUntypedStorage\n",
                                                  "torch._utils\n_rebuild_tensor_v2\n",
                                                  "torch._utils\n_rebuild_tensor_v3\n",
                                                  "torch._utils\n_rebuild_parameter\n",
                                                  "collections\nOrderedDict\n",
                                                  "torch\nSize\n",
                                                  "torch\ndevice\n",
                                                  "torch\nfloat8_e4m3fn\n",
                                                  "_codecs\nencode\n",
                                                  "builtins\nset\n",
                                                  "__builtin__\nbytearray\n"};
  const Form form = form_of(operation.code).value_or(Form{});
  if (random.one_in(6)) {
    operation.code = kCodes[random.below(kCodes.size())];
    const Form other = form_of(operation.code).value_or(Form{});
    if (other.length == 0) operation.argument.resize(other.fixed);
    if (other.lines > 0) operation.argument = kGlobals[random.below(std::size(kGlobals))];
  } else if (form.lines == 2) {
    operation.argument = random.one_in(4) ? mutate_bytes(operation.argument) + "\n\n"
                                          : std::string(kGlobals[random.below(std::size(kGlobals))]);
  } else if (form.lines == 1) {
    std::string line = mutate_bytes(operation.argument.substr(0, operation.argument.size() - 1));
    std::erase(line, '\n');
    operation.argument = line + "\n";
  } else if (form.length > 0) {
    operation.argument = mutate_bytes(operation.argument, 64);
  } else if (form.fixed > 0 && random.one_in(2)) {
    operation.argument.assign(form.fixed, static_cast<char>(random.below(8)));
    std::fill(operation.argument.begin() + 1, operation.argument.end(), '\0');
  } else {
    mutate_in_place(operation.argument);
  }
}

}  // namespace

std::optional<std::string> mutate_pickle(std::string_view input, Random& random) {
  auto operations = parse(input);
  if (!operations || operations->empty()) return std::nullopt;
  do mutate_list(*operations, random, [&](Operation& operation) { change(operation, random); });
  while (random.one_in(4));
  return write(*operations);
}

}  // namespace mantissa::fuzz
