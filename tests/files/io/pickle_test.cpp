// Hostile pickles. None of them runs anything.
#include <string>

#include "core/disk/temporary.h"
#include "files/io/torch_testing.h"
#include "mantissa/core/base/error.h"
#include "mantissa/files/io/pth/state_dict.h"

namespace mantissa::io::pth {
namespace {

using namespace std::string_literals;

std::string fault_of(const std::string& pickle) {
  return test::message_of<FileError>([&] {
    const Pickle parsed = parse_pickle(std::as_bytes(std::span(pickle)), "model.pth");
    state_dict_of(parsed, "model.pth");
  });
}

bool refuses(const std::string& pickle, const std::string& words) {
  const std::string message = fault_of(pickle);
  const bool found = message.find(words) != std::string::npos;
  if (!found) ADD_FAILURE() << "\"" << message << "\" does not contain \"" << words << "\"";
  EXPECT_EQ(message.find("model.pth: "), 0U) << message;
  EXPECT_NE(message.find(". Fix: "), std::string::npos) << message;
  return found;
}

TEST(Pickle, OtherGlobalsAreRefusedByName) {
  EXPECT_TRUE(refuses("\x80\x02"s + "cposix\nsystem\nX\x04\0\0\0true\x85R."s, "needs \"posix.system\""));
  EXPECT_TRUE(
      refuses("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."s, "needs \"posix.system\""));
  EXPECT_TRUE(refuses("(S'true'\niposix\nsystem\n."s, "needs \"posix.system\""));
  EXPECT_TRUE(refuses("cbuiltins\neval\n."s, "needs \"builtins.eval\""));
  EXPECT_TRUE(refuses("ctorch._utils\n_rebuild_tensor_v2.__globals__\n."s, "needs"));
  EXPECT_TRUE(refuses("ctorch.storage\n_load_from_bytes\n."s, "torch.storage._load_from_bytes"));
  EXPECT_TRUE(refuses("ctorch\n\n."s, "needs \"torch.\""));
}

TEST(Pickle, ObjectsAreRefused) {
  EXPECT_TRUE(refuses("}}b."s, "sets attributes"));
  EXPECT_TRUE(refuses("ccollections\nOrderedDict\n)R]b."s, "sets attributes"));
  EXPECT_TRUE(refuses("ccollections\nOrderedDict\n)\x81."s, "opcode 0x81"));
  EXPECT_TRUE(refuses("K\x01)R."s, "not a function"));
  EXPECT_TRUE(refuses("ctorch\nFloatStorage\n)R."s, "not a function"));
  EXPECT_TRUE(refuses("ccollections\nOrderedDict\nK\x01R."s, "tuple of arguments"));
  EXPECT_TRUE(refuses("K\x01Q."s, "not a storage"));
  EXPECT_TRUE(refuses("\x80\x06."s, "protocol 6"));
}

TEST(Pickle, LengthsAreNotTrusted) {
  EXPECT_TRUE(refuses("\x8d"s + std::string(8, '\xff') + ".", "truncated"));
  EXPECT_TRUE(refuses("\x8e"s + std::string(7, '\xff') + "\x7f.", "truncated"));
  EXPECT_TRUE(refuses("\x8b\xff\xff\xff\xff."s, "truncated"));
  EXPECT_TRUE(refuses("X\xff\xff\xff\x7f."s, "truncated"));
  EXPECT_TRUE(refuses("cposix"s, "truncated"));
}

TEST(Pickle, TheStackAndTheMemoAreChecked) {
  for (const char* pickle :
       {"0.", ".", "t.", "a.", "]a.", "s.", "}K\1s.", "R.", "Q.", "b.", "2.", "\x85.", "(]e."})
    EXPECT_FALSE(fault_of(pickle).empty());
  EXPECT_TRUE(refuses("j\xff\xff\xff\xff."s, "entry 4294967295 of its memo"));
  EXPECT_TRUE(
      refuses("(K\x01K\x01K\x01"
              "d."s,
              "key without a value"));
  EXPECT_TRUE(refuses(std::string(5 << 20, '(') + ".", "too deeply"));
  EXPECT_TRUE(refuses(std::string(5 << 20, '}') + ".", "values"));
}

TEST(Pickle, ValuesThatContainThemselvesEnd) {
  EXPECT_TRUE(refuses("}q\0X\x01\0\0\0ah\0s."s, "nest"));
  EXPECT_TRUE(refuses("]q\0h\0a."s, "no tensors"));
  std::string doubled = "}q\0";  // a dict that holds the dict before it twice, and so on
  doubled = "}q\0"s;
  for (char i = 1; i < 31; ++i)
    doubled += "}q"s + i + "X\x01\0\0\0ah"s + static_cast<char>(i - 1) + "sX\x01\0\0\0bh"s +
               static_cast<char>(i - 1) + "s";
  EXPECT_TRUE(refuses(doubled + ".", "share each other too often"));
}

TEST(Pickle, ACutPickleIsRefused) {
  const std::string whole = test::pickle_of_tensor(6, 0, "\x06", "\x01");
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(fault_of(whole.substr(0, size)).empty());
}

TEST(Pickle, NamesAreUniqueUtf8) {
  const std::string w = test::pickle_of_tensor(6, 0, "\x06", "\x01");
  std::string broken = w;
  broken[broken.find('w')] = '\xff';
  EXPECT_TRUE(refuses(broken, "not UTF-8"));
}

}  // namespace
}  // namespace mantissa::io::pth
